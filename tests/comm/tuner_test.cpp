#include "gradwire/comm/tuner.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/comm/planner.h"
#include "gradwire/engine/links/outbox.h"

namespace gradwire {
namespace {

using testing::AnyOf;

TEST(Tuner, SmallMessagesTakeFewHopsAndLargeOnesLittleBandwidth) {
  for (const int ranks : {4, 8, 16}) {
    Tuner tuner(Tuner::assumed(ranks));
    const std::string small = tuner.choose({.collective = schedule::Collective::all_reduce}, 4);
    EXPECT_TRUE(small == "recursive_doubling" || small == "exchange") << small << " " << ranks;
    const std::string large =
        tuner.choose({.collective = schedule::Collective::all_reduce}, 100'000'000);
    EXPECT_TRUE(large == "ring" || large == "direct") << large;
  }
}

TEST(Tuner, ALargeRingIsExpectedToFillItsLinks) {
  for (const double rate : {1.25e8, 6.25e8}) {
    Tuner tuner(topology::Topology::uniform(4, {.bytes_per_second = rate}));
    constexpr std::size_t kBytes = std::size_t{1} << 27;  // Its own power of two.
    const auto estimates = tuner.explain({.collective = schedule::Collective::all_reduce}, kBytes);
    const auto ring = std::ranges::find(estimates, "ring", &AlgorithmEstimate::algorithm);
    ASSERT_NE(ring, estimates.end());
    const double seconds = std::chrono::duration<double>(ring->time).count();
    EXPECT_LT(seconds, 1.01 * 1.5 * static_cast<double>(kBytes) / rate);
  }
}

TEST(Tuner, ChoosesForEveryCollectiveAndSize) {
  Tuner tuner(Tuner::assumed(5));
  for (const schedule::Collective collective :
       {schedule::Collective::all_reduce, schedule::Collective::all_gather,
        schedule::Collective::reduce_scatter, schedule::Collective::broadcast,
        schedule::Collective::barrier}) {
    for (std::size_t bytes = 0; bytes < 1u << 28; bytes = bytes * 3 + 1) {
      EXPECT_FALSE(tuner.choose({.collective = collective}, bytes).empty());
    }
  }
}

TEST(Tuner, HostsThatShareTheirProcessorsSendFewMessages) {
  const topology::Link link{.latency = std::chrono::microseconds(20)};
  std::vector<topology::Host> hosts(4, topology::Host{.rails = {link}, .cores = 2});
  const std::vector<int> host_of{0, 1, 2, 3};
  EXPECT_EQ(Tuner(topology::Topology(hosts, host_of))
                .choose({.collective = schedule::Collective::all_reduce}, 4),
            "exchange");
  for (topology::Host& host : hosts) host.kernel = 0;
  EXPECT_EQ(Tuner(topology::Topology(hosts, host_of))
                .choose({.collective = schedule::Collective::all_reduce}, 4),
            "recursive_doubling");
}

TEST(Tuner, AMeasurementAppliesOnlyNearItsSize) {
  const schedule::CollectiveSpec spec{.collective = schedule::Collective::all_reduce};
  const std::vector<topology::MeasuredChoice> choices{
      {"all_reduce", 4, 1024, "tree", std::chrono::microseconds(70), 8},
      {"all_reduce", 4, 4096, "double_tree", std::chrono::microseconds(90)},
      {"all_reduce", 4, 16, "of_another_version", std::chrono::microseconds(1)},
      {"broadcast", 4, 1 << 20, "direct", std::chrono::microseconds(80)}};
  Tuner model(Tuner::assumed(4));
  Tuner tuner(Tuner::assumed(4), 128 * 1024, choices);
  EXPECT_EQ(tuner.choose(spec, 1000), "tree");
  EXPECT_EQ(tuner.choose(spec, 512), "tree");
  EXPECT_EQ(tuner.choose(spec, 8192), "double_tree");
  EXPECT_EQ(tuner.choose(spec, 64 * 1024), model.choose(spec, 64 * 1024));
  EXPECT_EQ(tuner.choose(spec, 16), model.choose(spec, 16));
  const auto ranked = tuner.explain(spec, 1024);
  EXPECT_TRUE(ranked.front().measured);
  EXPECT_EQ(ranked.front().time, std::chrono::microseconds(70));
  EXPECT_EQ(ranked.front().segments, 8);
  EXPECT_EQ(ranked.size(), model.explain(spec, 1024).size());
  EXPECT_FALSE(ranked[1].measured);
  EXPECT_EQ(ranked[1].segments, 0);
}

TEST(Tuner, MeasuredSegmentsGoWithTheirAlgorithmAndSize) {
  const Tuner tuner(Tuner::assumed(4), 128 * 1024,
                    {{"all_reduce", 4, 1 << 20, "ring", std::chrono::milliseconds(9), 32},
                     {"all_reduce", 4, 4 << 20, "ring", std::chrono::milliseconds(30)}});
  EXPECT_EQ(tuner.segments(schedule::Collective::all_reduce, 1 << 20, "ring"), 32);
  EXPECT_EQ(tuner.segments(schedule::Collective::all_reduce, 700'000, "ring"), 32);
  EXPECT_EQ(tuner.segments(schedule::Collective::all_reduce, 1 << 20, "tree"), 0);
  EXPECT_EQ(tuner.segments(schedule::Collective::broadcast, 1 << 20, "ring"), 0);
  EXPECT_EQ(tuner.segments(schedule::Collective::all_reduce, 4 << 20, "ring"), 0);
  EXPECT_EQ(tuner.segments(schedule::Collective::all_reduce, 64 << 20, "ring"), 0);
}

TEST(Planner, MeasuredSegmentsArePartOfThePlan) {
  Planner planner(
      0,
      {.topology = Tuner::assumed(4),
       .choices = {{"all_reduce", 4, 1 << 20, "ring", std::chrono::milliseconds(9), 8}}},
      {}, 128 * 1024);
  const schedule::CollectiveSpec spec{.collective = schedule::Collective::all_reduce};
  EXPECT_EQ(planner.plan(spec, 1 << 20, "").algorithm, "ring");
  EXPECT_EQ(planner.plan(spec, 1 << 20, "").segments, 8);
  EXPECT_EQ(planner.plan(spec, 1 << 20, "tree").segments, 0);
  EXPECT_EQ(planner.plan(spec, 64 << 20, "ring").segments, 0);
}

TEST(Segments, AreAsManyAsAskedWithinLimits) {
  constexpr std::size_t kMaxBytes = 128 * 1024;
  EXPECT_EQ(schedule::segment_of(1 << 20, kMaxBytes), 64u * 1024);
  EXPECT_EQ(schedule::segment_of(1 << 20, kMaxBytes, 32), 32u * 1024);
  EXPECT_EQ(schedule::segment_of(1 << 20, kMaxBytes, 4), kMaxBytes);
  EXPECT_EQ(schedule::segment_of(1 << 20, kMaxBytes, 1000), schedule::kMinSegmentBytes);
}

/// A cluster as `gradwire probe` would measure it: hosts on one switch whose ports have these
/// rates.
topology::Cluster probed(const std::vector<double>& rates, int ranks_each = 1) {
  topology::Cluster cluster;
  const auto hosts = static_cast<int>(rates.size());
  for (int host = 0; host < hosts; ++host) {
    cluster.hosts.push_back({.name = std::to_string(host),
                             .ranks = ranks_each,
                             .rails = {{.interface = "eth0"}},
                             .inside = topology::Link{std::chrono::microseconds(1), 4e9}});
    for (int to = 0; to < hosts; ++to) {
      if (to == host) continue;
      const double rate =
          std::min(rates[static_cast<std::size_t>(host)], rates[static_cast<std::size_t>(to)]);
      cluster.paths.push_back({.from = host,
                               .to = to,
                               .latency = std::chrono::microseconds(40),
                               .bytes_per_second = rate});
    }
  }
  topology::set_rails_from_paths(cluster);
  return cluster;
}

std::string chosen(const topology::Cluster& cluster, std::size_t bytes) {
  return Tuner(topology_of(cluster))
      .choose({.collective = schedule::Collective::all_reduce}, bytes);
}

constexpr double kRate = 1.25e8;
constexpr std::size_t kLarge = 100'000'000;

TEST(Tuner, ASlowPortThatWasMeasuredChangesTheChoice) {
  EXPECT_THAT(chosen(probed({kRate, kRate, kRate, kRate}), kLarge), AnyOf("ring", "direct"));
  EXPECT_THAT(chosen(probed({kRate, kRate, kRate, kRate / 2}), kLarge),
              AnyOf("uneven", "spanning_trees"));
}

TEST(Tuner, SlowWiresThatWereMeasuredAreGoneRound) {
  topology::Cluster cluster = probed({kRate, kRate, kRate, kRate});
  for (topology::MeasuredPath& path : cluster.paths) {
    // Ring neighbors: 0 and 1, 2 and 3.
    if (path.from / 2 == path.to / 2) path.bytes_per_second /= 20;
  }
  EXPECT_EQ(chosen(cluster, kLarge), "spanning_trees");
}

TEST(Tuner, RanksOfOneHostShareItsPort) {
  const topology::Cluster cluster = probed({kRate, kRate, kRate, kRate}, 3);
  EXPECT_EQ(chosen(cluster, kLarge), "hierarchical");
  EXPECT_EQ(chosen(cluster, 4), "leaders");
}

TEST(Tuner, AWorldOfOneHasAChoiceToo) {
  Tuner tuner(Tuner::assumed(1));
  EXPECT_FALSE(tuner.choose({.collective = schedule::Collective::all_reduce}, 1000).empty());
}

}  // namespace
}  // namespace gradwire
