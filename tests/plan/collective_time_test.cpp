#include "gradwire/plan/collective_time.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/cost.h"

namespace gradwire {
namespace {

/// Latency of ten microseconds, one gigabyte per second, no headers and no CPU time.
Network plain() {
  return {.name = "plain", .bytes_per_second = 1e9, .latency = 10e-6};
}

/// The cost of the schedule itself, simulated on the same links.
double scheduled(const std::string& algorithm, int nodes, double bytes) {
  const Topology topology =
      Topology::uniform(nodes, {.latency = std::chrono::microseconds(10), .bytes_per_second = 1e9});
  const Schedule schedule =
      value_or_throw(make_schedule({.collective = Collective::all_reduce}, algorithm, topology));
  const ChunkLayout layout(schedule.chunks, static_cast<std::size_t>(bytes), 1);
  return std::chrono::duration<double>(ScheduleCost(schedule).estimate(topology, layout).total)
      .count();
}

struct Case {
  const char* algorithm;
  int nodes;
  double bytes;
  double tolerance;  ///< Relative.
};

class Forms : public ::testing::TestWithParam<Case> {};

TEST_P(Forms, AgreeWithTheSchedules) {
  const Case& c = GetParam();
  const double form = all_reduce_time(c.algorithm, c.nodes, c.bytes, plain()).total();
  EXPECT_NEAR(form, scheduled(c.algorithm, c.nodes, c.bytes), c.tolerance * form);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Forms,
    ::testing::Values(
        Case{"ring", 2, 64e6, 0.01}, Case{"ring", 4, 64, 0.01}, Case{"ring", 8, 64e6, 0.02},
        Case{"ring", 7, 64e6, 0.02}, Case{"direct", 8, 64e6, 0.02}, Case{"direct", 4, 64, 0.01},
        Case{"halving_doubling", 8, 64e6, 0.02}, Case{"halving_doubling", 16, 64, 0.01},
        Case{"halving_doubling", 12, 64e6, 0.1}, Case{"halving_doubling", 5, 64e6, 0.1},
        Case{"recursive_doubling", 16, 64, 0.01}, Case{"recursive_doubling", 8, 64e6, 0.02},
        Case{"recursive_doubling", 12, 64e6, 0.06}, Case{"tree", 3, 64e6, 0.02},
        Case{"tree", 4, 64e6, 0.02}, Case{"tree", 16, 64e6, 0.04}, Case{"tree", 16, 64, 0.01},
        Case{"double_tree", 3, 64e6, 0.05}, Case{"double_tree", 7, 64e6, 0.04},
        Case{"double_tree", 32, 64e6, 0.04}, Case{"double_tree", 16, 64, 0.2},
        Case{"star", 4, 64e6, 0.02}, Case{"star", 16, 64e6, 0.02}),
    [](const auto& instance) {
      return std::string(instance.param.algorithm) + "_" + std::to_string(instance.param.nodes) +
             (instance.param.bytes < 1e3 ? "_small" : "_large");
    });

TEST(AllReduce, AutoIsNeverSlowerThanTheRing) {
  for (const int nodes : {2, 3, 4, 7, 16, 100, 4096}) {
    for (const double bytes : {4.0, 1e4, 1e6, 1e9}) {
      const CollectiveTime best = all_reduce_time("auto", nodes, bytes, plain());
      EXPECT_LE(best.total(), all_reduce_time("ring", nodes, bytes, plain()).total());
      EXPECT_GE(best.bandwidth, 0.999 * bytes / 1e9);
    }
  }
}

TEST(AllReduce, FewHopsForFewBytesOfManyNodes) {
  EXPECT_EQ(all_reduce_time("auto", 512, 64, plain()).algorithm, "direct");
  EXPECT_EQ(all_reduce_time("auto", 512, 4e8, plain()).algorithm, "halving_doubling");
  EXPECT_EQ(all_reduce_time("auto", 4, 4e9, plain()).algorithm, "ring");
}

TEST(AllReduce, OneNodeNeedsNoTime) {
  EXPECT_EQ(all_reduce_time("auto", 1, 1e9, plain()).total(), 0);
  EXPECT_EQ(coded_time(1, 1e9, 1e9, plain()).total(), 0);
}

TEST(AllReduce, OversubscribedSwitchesSlowDownWhatCrossesThem) {
  Network network = plain();
  network.oversubscription = 4;
  EXPECT_EQ(all_reduce_time("ring", 16, 1e9, network).bandwidth,
            all_reduce_time("ring", 16, 1e9, plain()).bandwidth);
  EXPECT_DOUBLE_EQ(all_reduce_time("halving_doubling", 16, 1e9, network).bandwidth,
                   2 * all_reduce_time("halving_doubling", 16, 1e9, plain()).bandwidth);
}

TEST(AllReduce, UnequalPortsTakeTheBoundOfTheVocabulary) {
  std::vector<Link> ports(4, Link{std::chrono::microseconds(10), 1e9});
  ports[2].bytes_per_second = 5e8;
  const Network network = network_of(Topology(ports));
  // M / min B = 2 M / B; 2 (P-1) M / sum B = 6 / 3.5 M / B.
  EXPECT_DOUBLE_EQ(all_reduce_time("auto", 4, 1e9, network).bandwidth, 2);
  EXPECT_DOUBLE_EQ(all_reduce_time("ring", 4, 1e9, network).bandwidth, 3);
}

TEST(Servers, TakeTheirPartOfAllWorkers) {
  EXPECT_DOUBLE_EQ(server_time(4, 1, 1e9, plain()).bandwidth, 8);
  EXPECT_DOUBLE_EQ(server_time(4, 2, 1e9, plain()).bandwidth, 4);
  // Limited by the workers' own ports.
  EXPECT_DOUBLE_EQ(server_time(4, 8, 1e9, plain()).bandwidth, 2);
}

TEST(Networks, AreNamedOrRatesOrRefused) {
  EXPECT_DOUBLE_EQ(network_named("10GbE").bytes_per_second, 1.25e9);
  EXPECT_DOUBLE_EQ(network_named("100g").bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(network_named("IB-HDR").bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(network_named("56Gb/s").bytes_per_second, 7e9);
  // 42 of 50 GB/s over four cards of 100 Gb/s, each counted in full.
  Network cards = network_named("ib_edr");
  cards.cards = 4;
  cards.further_card = 1;
  EXPECT_NEAR(cards.goodput(), 42e9, 1e6);
  try {
    network_named("10gbee");
    FAIL();
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("did you mean \"10gbe\""));
  }
}

}  // namespace
}  // namespace gradwire
