#include "gradwire/plan/predict/collective_time.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/cost.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::plan {
namespace {

/// Latency of ten microseconds, one gigabyte per second, no headers and no CPU time.
Network plain() {
  return {.name = "plain", .bytes_per_second = 1e9, .latency = 10e-6};
}

CollectiveTime all_reduce(const std::string& algorithm, int nodes, double bytes,
                          const Network& network = plain()) {
  return CollectiveTimes().of(schedule::Collective::all_reduce, algorithm, nodes, bytes, network);
}

/// The cost of the schedule itself, on the same links.
double scheduled(const std::string& algorithm, int nodes, std::size_t bytes) {
  const topology::Topology topology = topology::Topology::uniform(
      nodes, {.latency = std::chrono::microseconds(10), .bytes_per_second = 1e9});
  const schedule::ScheduleCost cost(value_or_throw(schedule::make_schedule(
      {.collective = schedule::Collective::all_reduce}, algorithm, topology)));
  schedule::CostOptions costs = schedule::executor_costs();
  costs.max_segments = 64;
  costs.per_segment = Duration::zero();
  costs.reduce_bytes_per_second = 0;
  return std::chrono::duration<double>(cost.estimate(topology, bytes, costs).total).count();
}

TEST(AllReduce, TakesAsLongAsItsSchedule) {
  for (const std::string_view algorithm : planned_algorithms()) {
    if (algorithm == "auto") continue;
    for (int nodes = 2; nodes <= 64; nodes = nodes < 17 ? nodes + 1 : nodes + 15) {
      for (const std::size_t bytes : {std::size_t{64'000}, std::size_t{64'000'000}}) {
        const std::string name(algorithm);
        const double expected = scheduled(name, nodes, bytes);
        const CollectiveTime time = all_reduce(name, nodes, static_cast<double>(bytes));
        EXPECT_NEAR(time.total(), expected, 0.03 * expected)
            << name << " " << nodes << " " << bytes;
        EXPECT_LE(time.sent, 1.001e9 * time.bandwidth) << name << " " << nodes;
      }
    }
  }
}

TEST(EngineNetwork, CollectivesTakeTheTimeOfTheBusBandwidth) {
  Network network = network_of_engine("nccl", "42GB/s");
  EXPECT_EQ(network.source, "given: --bus-bandwidth");
  const CollectiveTime reduce = all_reduce("auto", 4, 84e9, network);
  EXPECT_DOUBLE_EQ(reduce.bandwidth, 3);  // 2 (P-1)/P = 1.5.
  EXPECT_DOUBLE_EQ(reduce.sent, 126e9);
  EXPECT_EQ(reduce.latency, 0);  // Neither given nor measured.
  EXPECT_EQ(reduce.algorithm, "nccl");
  network.latency = 5e-6;
  EXPECT_DOUBLE_EQ(all_reduce("auto", 4, 1, network).latency, 20e-6);
  EXPECT_DOUBLE_EQ(all_reduce("auto", 5, 1, network).latency, 30e-6);
  CollectiveTimes times;
  const CollectiveTime gather = times.coded_gather(4, 84e9, network);
  EXPECT_DOUBLE_EQ(gather.bandwidth, 1.5);
  EXPECT_DOUBLE_EQ(gather.latency, 10e-6);
  EXPECT_DOUBLE_EQ(times.coded_reduction(4, 84e9, network).bandwidth, 1.5);
}

TEST(EngineNetwork, ReadsTheRowsOfBench) {
  const auto row = [](const char* engine, double bytes, double us, int ranks, int wrong = 0,
                      const char* collective = "all_reduce") {
    return nlohmann::json{{"engine", engine},   {"collective", collective}, {"bytes", bytes},
                          {"median_us", us},    {"ranks", ranks},           {"wrong", wrong},
                          {"algorithm", "mpi"}, {"type", "float32"}};
  };
  const test::TemporaryFolder folder;
  const auto read = [&](nlohmann::json rows, const std::string& engine) {
    const std::string file =
        folder.write("rows.json", nlohmann::json{{"rows", std::move(rows)}}.dump());
    return network_of_engine(engine, file);
  };
  const auto error_of_rows = [&](const nlohmann::json& rows) {
    return test::error_of([&] { read(rows, "mpi"); });
  };
  nlohmann::json rows{row("mpi", 64e6, 96'000, 4),
                      row("mpi", 64e6, 90'000, 4),
                      row("own", 64e6, 1, 4),
                      row("mpi", 64e6, 1, 1),
                      row("mpi", 128e6, 1, 4, 0, "gather"),
                      row("mpi", 128e6, 1, 4, 7),
                      row("mpi", 4000, 40, 8),
                      row("mpi", 1000, 121, 3)};
  const Network network = read(rows, "mpi");
  EXPECT_EQ(network.name, "mpi, measured");
  EXPECT_DOUBLE_EQ(network.goodput(), 1.5 * 64e6 / 90e-3);
  // Four hops, without the time of 4/3 * 1000 bytes.
  EXPECT_DOUBLE_EQ(network.latency, (121e-6 - 4.0 / 3 * 1000 / network.goodput()) / 4);
  EXPECT_THAT(network.source, ::testing::EndsWith("rows.json"));
  EXPECT_EQ(read({row("mpi", 64e6, 96'000, 4)}, "mpi").latency, 0);
  rows.push_back({{"system", "gloo"},  // A peer of --compare.
                  {"collective", "all_reduce"},
                  {"bytes", 2e6},
                  {"median_us", 1e3},
                  {"ranks", 2},
                  {"wrong", 0}});
  EXPECT_DOUBLE_EQ(read(rows, "gloo").goodput(), 2e9);
  EXPECT_THAT(error_of_rows({row("own", 64e6, 9, 4), row("mpi", 1e6, 9, 4)}),
              ::testing::HasSubstr("no row is an all_reduce of 1 MiB or more among 2 ranks or more "
                                   "with engine mpi (engines: mpi, own)"));
  EXPECT_THAT(error_of_rows({{{"system", "mpi"}}}), ::testing::HasSubstr("rows[0]"));
  EXPECT_THAT(test::error_of([] { network_of_engine("mpi", "42"); }),
              ::testing::HasSubstr("--bus-bandwidth 42: expected a rate such as 42GB/s"));
}

TEST(AllReduce, ARingTakesTheTimeOfTheTextbookFormula) {
  for (const int nodes : {2, 7, 64, 1000, 100'000}) {
    const double share = 2.0 * (nodes - 1) / nodes;
    const CollectiveTime large = all_reduce("ring", nodes, 64e6);
    EXPECT_NEAR(large.bandwidth, share * 64e-3, 1e-9) << nodes;
    EXPECT_NEAR(large.sent, share * 64e6, 1) << nodes;
    EXPECT_NEAR(all_reduce("ring", nodes, 64).total() / (2 * (nodes - 1) * 10e-6), 1, 0.01);
  }
}

TEST(AllReduce, AutoIsNeverSlowerThanTheRing) {
  for (const int nodes : {2, 3, 4, 7, 16, 100, 4096}) {
    for (const double bytes : {4.0, 1e4, 1e6, 1e9}) {
      const CollectiveTime best = all_reduce("auto", nodes, bytes);
      EXPECT_LE(best.total(), 1.001 * all_reduce("ring", nodes, bytes).total()) << nodes;
      EXPECT_GE(best.bandwidth, 0.999 * bytes / 1e9);
    }
  }
}

TEST(AllReduce, FewHopsForFewBytesOfManyNodes) {
  EXPECT_EQ(all_reduce("auto", 512, 64).algorithm, "direct");
  EXPECT_EQ(all_reduce("auto", 512, 4e6).algorithm, "halving_doubling");
  EXPECT_EQ(all_reduce("auto", 4, 4e9).algorithm, "ring");
}

TEST(AllReduce, OneNodeNeedsNoTime) {
  EXPECT_EQ(all_reduce("auto", 1, 1e9).total(), 0);
  EXPECT_EQ(CollectiveTimes().coded_reduction(1, 1e9, plain()).total(), 0);
}

TEST(AllReduce, RemembersTimes) {
  CollectiveTimes times;
  const auto time = [&](double rate) {
    Network network = plain();
    network.bytes_per_second = rate;
    return times.of(schedule::Collective::all_reduce, "ring", 4, 1e9, network).total();
  };
  EXPECT_EQ(time(1e9), time(1e9));
  EXPECT_NEAR(time(2e9), time(1e9) / 2, 1e-3);
}

TEST(AllReduce, OversubscribedSwitchesSlowDownWhatCrossesThem) {
  Network network = plain();
  network.oversubscription = 4;
  const double ring = all_reduce("ring", 16, 1e9).total();
  EXPECT_NEAR(all_reduce("ring", 16, 1e9, network).total(), ring, 0.01 * ring);
  // Half of the data cross between the halves, at a quarter of the rate, in each direction.
  EXPECT_NEAR(all_reduce("halving_doubling", 16, 1e9, network).total(), 4 * 1 + 0.875, 0.05);
}

TEST(AllReduce, UnequalPortsComeNearTheBoundOfTheVocabulary) {
  std::vector<topology::Link> ports(4, topology::Link{std::chrono::microseconds(10), 1e9});
  ports[2].bytes_per_second = 5e8;
  const Network network = network_of(topology::Topology(ports));
  // M / min B = 2 M / B; 2 (P-1) M / sum B = 6 / 3.5 M / B.
  const CollectiveTime best = all_reduce("auto", 4, 1e9, network);
  EXPECT_GE(best.total(), 2);
  EXPECT_LE(best.total(), 2.2);
  EXPECT_NEAR(all_reduce("ring", 4, 1e9, network).total(), 3, 0.01);
}

TEST(Servers, TakeTheirPartOfAllWorkers) {
  EXPECT_DOUBLE_EQ(server_time({4, 1}, 1e9, 1e9, plain()).bandwidth, 8);
  EXPECT_DOUBLE_EQ(server_time({4, 2}, 1e9, 1e9, plain()).bandwidth, 4);
  // Limited by the workers' own ports.
  EXPECT_DOUBLE_EQ(server_time({4, 8}, 1e9, 1e9, plain()).bandwidth, 2);
  // A quarter pushed, and half of it pulled.
  EXPECT_DOUBLE_EQ(server_time({4, 1}, 2.5e8, 5e8, plain()).bandwidth, 3);
}

/// A server beside each worker moves as many bytes as an all-reduce.
TEST(Servers, BesideWorkersKeepTheirOwnPart) {
  EXPECT_DOUBLE_EQ(server_time({4, 4, true}, 1e9, 1e9, plain()).bandwidth, 1.5);
  EXPECT_DOUBLE_EQ(server_time({4, 4, true}, 1e9, 1e9, plain()).sent, 1.5e9);
  EXPECT_DOUBLE_EQ(server_time({4, 1, true}, 1e9, 1e9, plain()).bandwidth, 6);
  EXPECT_DOUBLE_EQ(server_time({4, 3, true}, 1e9, 1e9, plain()).bandwidth, 2);
}

/// A star has one server, which is one of its ranks; it sends back while it still receives.
TEST(Servers, TakeTwiceAsLongAsAStar) {
  for (int workers = 2; workers <= 64; workers *= 2) {
    const double servers = server_time({workers, 1}, 1e9, 1e9, plain()).total();
    EXPECT_NEAR(servers / 2, all_reduce("star", workers + 1, 1e9).total(), 0.15 * servers / 2)
        << workers;
  }
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
}  // namespace gradwire::plan
