#include "gradwire/schedule/cost/cost.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/catalogue.h"
#include "tests/schedule/textbook_links.h"

/// Compares the cost of schedules with textbook formulas, which the cost model does not use.
namespace gradwire::schedule {
namespace {

using std::chrono::microseconds;

using test::kLatency;
using test::kRate;
using test::links;
using test::wire;

/// Without segmentation of messages, as in the textbook.
constexpr CostOptions kWhole{.segment_bytes = std::numeric_limits<std::size_t>::max() / 2,
                             .max_segments = 1};

ChunkLayout layout_of(const Schedule& schedule, std::size_t bytes) {
  return {schedule.chunks, bytes / 4, 4};
}

double time_of(const Schedule& schedule, std::size_t bytes, const CostOptions& options = kWhole) {
  const Estimate estimate =
      ScheduleCost(schedule).estimate(links(schedule.ranks), layout_of(schedule, bytes), options);
  return static_cast<double>(estimate.total.count());
}

Counts counts_of(const Schedule& schedule, std::size_t bytes) {
  return ScheduleCost(schedule).count(layout_of(schedule, bytes));
}

std::size_t sum(const std::vector<std::size_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::size_t{0});
}

std::uint32_t floor_log2(int n) {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(n)) - 1);
}

std::uint32_t ceil_log2(int n) {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(n - 1)));
}

/// Divides evenly among 1 to 16 ranks.
constexpr std::size_t kBytes = 4u * 720720u;

class Ranks : public testing::TestWithParam<int> {
 protected:
  int p() const { return GetParam(); }
  double share() const { return static_cast<double>(kBytes) / p(); }
};

TEST_P(Ranks, RingAllReduceTakesTheTextbooksTimeAndBytes) {
  const Schedule ring = ring_all_reduce(links(p()));
  const Counts counts = counts_of(ring, kBytes);
  EXPECT_EQ(counts.steps, 2u * static_cast<unsigned>(p() - 1));
  for (std::size_t bytes : counts.bytes_sent) {
    EXPECT_EQ(static_cast<double>(bytes), 2 * (p() - 1) * share());
  }
  for (std::size_t messages : counts.messages_sent) EXPECT_EQ(messages, counts.steps);
  EXPECT_NEAR(time_of(ring, kBytes), 2 * (p() - 1) * (kLatency + wire(share())), 1);
}

TEST_P(Ranks, RingHalvesTakeHalfTheTime) {
  for (const Schedule& half : {ring_reduce_scatter(links(p())), ring_all_gather(links(p()))}) {
    const Counts counts = counts_of(half, kBytes);
    EXPECT_EQ(counts.steps, static_cast<unsigned>(p() - 1));
    for (std::size_t bytes : counts.bytes_sent) {
      EXPECT_EQ(static_cast<double>(bytes), (p() - 1) * share());
    }
    EXPECT_NEAR(time_of(half, kBytes), (p() - 1) * (kLatency + wire(share())), 1);
  }
}

TEST_P(Ranks, DirectTakesTwoLatenciesAndTheRingsBytes) {
  const Schedule direct = direct_all_reduce(links(p()));
  const Counts counts = counts_of(direct, kBytes);
  EXPECT_EQ(counts.steps, p() > 1 ? 2u : 0u);
  for (std::size_t bytes : counts.bytes_sent) {
    EXPECT_EQ(static_cast<double>(bytes), 2 * (p() - 1) * share());
  }
  const double hops = p() > 1 ? 2 : 0;
  EXPECT_NEAR(time_of(direct, kBytes), hops * (kLatency + (p() - 1) * wire(share())), 1);
}

TEST_P(Ranks, TreeTakesTwoLatenciesALevel) {
  const Schedule tree = tree_all_reduce(links(p()));
  const Counts counts = counts_of(tree, kBytes);
  EXPECT_EQ(counts.steps, 2 * floor_log2(p()));
  EXPECT_EQ(sum(counts.bytes_sent), 2 * static_cast<std::size_t>(p() - 1) * kBytes);
  EXPECT_NEAR(time_of(tree, 0), 2 * floor_log2(p()) * kLatency, 1);
  const Schedule down = tree_broadcast(links(p()), p() / 2);
  EXPECT_EQ(counts_of(down, kBytes).steps, floor_log2(p()));
  EXPECT_NEAR(time_of(down, 0), floor_log2(p()) * kLatency, 1);
}

TEST_P(Ranks, RecursiveDoublingExchangesTheWholeLogTimes) {
  const Schedule doubling = recursive_doubling_all_reduce(links(p()));
  const std::uint32_t rounds = floor_log2(p());
  const int members = 1 << rounds;
  const int extra = p() - members;
  // One more hop if there is an extra rank, two if both ends of a chain through all rounds can be.
  const unsigned more = (extra > 0 ? 1 : 0) + (2 * extra > members ? 1 : 0);
  EXPECT_EQ(counts_of(doubling, kBytes).steps, rounds + more);
  const double time = time_of(doubling, kBytes);
  if (extra == 0) {
    EXPECT_NEAR(time, rounds * (kLatency + wire(kBytes)), 1);
  }
  EXPECT_GE(time, rounds * (kLatency + wire(kBytes)) - 1);
  EXPECT_LE(time, (rounds + 2) * (kLatency + wire(kBytes)));
}

TEST_P(Ranks, BarrierTakesLogLatencies) {
  const Schedule barrier = dissemination_barrier(links(p()));
  const Counts counts = counts_of(barrier, 0);
  EXPECT_EQ(counts.steps, ceil_log2(p()));
  EXPECT_EQ(sum(counts.bytes_sent), 0u);
  EXPECT_EQ(sum(counts.messages_sent), static_cast<std::size_t>(p()) * ceil_log2(p()));
  EXPECT_NEAR(time_of(barrier, 0), ceil_log2(p()) * kLatency, 1);
}

TEST_P(Ranks, RingBroadcastFlowsThroughTheChain) {
  const Schedule chain = ring_broadcast(links(p()), 0);
  const double hops = p() - 1;
  EXPECT_NEAR(time_of(chain, kBytes), hops * (kLatency + wire(kBytes)), 1);
  const CostOptions cut{.segment_bytes = kBytes / 16, .max_segments = 16};
  const double expected =
      p() > 1 ? hops * kLatency + wire(kBytes) + (hops - 1) * wire(kBytes / 16.0) : 0;
  EXPECT_NEAR(time_of(chain, kBytes, cut), expected, 2);
}

INSTANTIATE_TEST_SUITE_P(OneToSixteen, Ranks, testing::Range(1, 17));

TEST(Cost, PortsCarryOneMessageAtATime) {
  // Both children of a root send to its one port, and the result leaves through it twice.
  EXPECT_NEAR(time_of(tree_all_reduce(links(2)), kBytes), 2 * (kLatency + wire(kBytes)), 1);
  EXPECT_NEAR(time_of(tree_all_reduce(links(3)), kBytes), 2 * (kLatency + 2 * wire(kBytes)), 1);
  EXPECT_NEAR(time_of(tree_all_reduce(links(7)), kBytes), 4 * (kLatency + 2 * wire(kBytes)), 1);
}

TEST(Cost, SlowPortsSlowThePath) {
  std::vector<topology::Link> ports(2, {.latency = microseconds(50), .bytes_per_second = kRate});
  ports[1] = {.latency = microseconds(80), .bytes_per_second = kRate / 10};
  const Schedule message = point_to_point(links(2), 0, 1);
  const Schedule reply = point_to_point(links(2), 1, 0);
  for (const Schedule& schedule : {message, reply}) {
    const Estimate estimate = ScheduleCost(schedule).estimate(topology::Topology(ports),
                                                              layout_of(schedule, kBytes), kWhole);
    EXPECT_NEAR(static_cast<double>(estimate.total.count()), 80e3 + 10 * wire(kBytes), 1);
  }
}

TEST(Cost, RanksOfAHostShareItsPort) {
  std::vector<topology::Host> hosts(2);
  for (topology::Host& host : hosts) {
    host.rails = {{.latency = microseconds(50), .bytes_per_second = kRate}};
    host.inside = {.latency = microseconds(2), .bytes_per_second = 4 * kRate};
  }
  const auto time = [&](const std::vector<int>& host_of) {
    const Schedule schedule = exchange_all_reduce(links(4));
    const Estimate estimate = ScheduleCost(schedule).estimate(topology::Topology(hosts, host_of),
                                                              layout_of(schedule, kBytes), kWhole);
    return static_cast<double>(estimate.total.count());
  };
  // Two ranks there send to two here, all through two ports.
  EXPECT_NEAR(time({0, 0, 1, 1}), kLatency + 4 * wire(kBytes), 1);
  EXPECT_NEAR(time({0, 1, 1, 1}), kLatency + 3 * wire(kBytes), 1);
  hosts.pop_back();
  EXPECT_NEAR(time({0, 0, 0, 0}), 2e3 + 3 * wire(kBytes) / 4, 1);
}

TEST(Cost, RailsMakeOnePort) {
  const topology::Link rail{.latency = microseconds(50), .bytes_per_second = kRate};
  const topology::Topology topology(
      {topology::Host{.rails = {rail, rail}}, topology::Host{.rails = {rail, rail}}}, {0, 1});
  const Schedule message = point_to_point(topology, 0, 1);
  const Estimate estimate =
      ScheduleCost(message).estimate(topology, layout_of(message, kBytes), kWhole);
  EXPECT_NEAR(static_cast<double>(estimate.total.count()), kLatency + wire(kBytes) / 2, 1);
}

TEST(Cost, MeasuredPathsDelayTheirTwoHostsOnly) {
  topology::Topology topology = links(3);
  topology.set_measured(0, 1, {.latency = microseconds(70), .bytes_per_second = kRate / 3});
  const auto time = [&](Rank from, Rank to) {
    const Schedule message = point_to_point(topology, from, to);
    const Estimate estimate =
        ScheduleCost(message).estimate(topology, layout_of(message, kBytes), kWhole);
    return static_cast<double>(estimate.total.count());
  };
  EXPECT_NEAR(time(0, 1), 70e3 + 3 * wire(kBytes), 1);
  EXPECT_NEAR(time(1, 0), kLatency + wire(kBytes), 1);
  EXPECT_NEAR(time(0, 2), kLatency + wire(kBytes), 1);
  // While the slow one continues, the port is free for others after its own time.
  const Schedule star = star_all_reduce(topology);
  const Estimate estimate = ScheduleCost(star).estimate(topology, layout_of(star, kBytes), kWhole);
  EXPECT_NEAR(static_cast<double>(estimate.total.count()),
              kLatency + 2 * wire(kBytes) + 70e3 + 3 * wire(kBytes), 1);
}

TEST(Cost, RanksThatShareProcessorsTakeTurns) {
  CostOptions options = kWhole;
  options.per_segment = microseconds(5);
  options.per_segment_inside = microseconds(1);
  const topology::Link port{.latency = microseconds(50), .bytes_per_second = kRate};
  topology::Host crowded{.rails = {port},
                         .inside = {.latency = microseconds(2), .bytes_per_second = kRate}};
  crowded.cores = 1;
  const topology::Topology topology({crowded, topology::Host{.rails = {port}}}, {0, 0, 1});
  const auto time = [&](Rank from, Rank to) {
    const Schedule message = point_to_point(topology, from, to);
    const Estimate estimate =
        ScheduleCost(message).estimate(topology, layout_of(message, 0), options);
    return static_cast<double>(estimate.total.count());
  };
  EXPECT_NEAR(time(0, 1), 2e3 + 2 * 2 * 1e3, 1);
  EXPECT_NEAR(time(0, 2), 50e3 + 2 * 5e3 + 5e3, 1);
}

/// Hosts that are network namespaces of one machine.
TEST(Cost, HostsOfAMachineShareItsProcessors) {
  CostOptions options = kWhole;
  options.per_segment = microseconds(100);
  const auto time = [&](int kernels) {
    std::vector<topology::Host> hosts;
    std::vector<int> host_of;
    for (int host = 0; host < 8; ++host) {
      hosts.push_back(
          {.rails = {{.bytes_per_second = kRate}}, .cores = 2, .kernel = host % kernels});
      host_of.push_back(host);
    }
    const topology::Topology topology(hosts, host_of);
    const Schedule schedule = direct_all_reduce(topology);
    return static_cast<double>(
        ScheduleCost(schedule).estimate(topology, layout_of(schedule, 4), options).total.count());
  };
  // 8 x 7 messages in each of two hops, each sent and received.
  EXPECT_NEAR(time(1), 8 * 7 * 2 * 2 * 100e3 / 2, 1);
  EXPECT_LT(time(8), 0.6 * time(1));
}

TEST(Cost, ReportsTheBusiestPort) {
  const Schedule star = star_all_reduce(links(4));
  const Estimate estimate = ScheduleCost(star).estimate(links(4), layout_of(star, kBytes), kWhole);
  EXPECT_NEAR(static_cast<double>(estimate.busiest_port.count()), 3 * wire(kBytes), 1);
}

/// Segments may wait for each other, each where the other arrived first: at a port, at a processor.
TEST(Cost, FindsACriticalPathOnAnyLinks) {
  const CostOptions options{.segment_bytes = 4096,
                            .max_segments = 16,
                            .per_segment = microseconds(8),
                            .reduce_bytes_per_second = 3e9};
  Random random(1);
  const auto some = [&] {
    return topology::Link{.latency = microseconds(random.between(1, 50)),
                          .bytes_per_second = kRate * (0.1 + random.unit())};
  };
  for (int i = 0; i < 40; ++i) {
    topology::Topology topology(std::vector<topology::Link>{some(), some(), some(), some()});
    for (int from = 0; from < 4; ++from) {
      for (int to = 0; to < 4; ++to) {
        if (to != from) topology.set_measured(from, to, some());
      }
    }
    for (const Algorithm& algorithm : algorithm_catalogue()) {
      if (algorithm.suits != nullptr && !algorithm.suits(topology)) continue;
      const Schedule schedule = algorithm.make(topology, {.collective = algorithm.collective});
      const Estimate estimate = ScheduleCost(schedule).estimate(
          topology, layout_of(schedule, random.below(400'000)), options);
      EXPECT_LE(estimate.critical_path.size(), 10'000u) << algorithm.name;
    }
  }
}

TEST(Cost, CountsProcessorTime) {
  CostOptions options = kWhole;
  options.per_segment = microseconds(5);
  const Schedule message = point_to_point(links(2), 0, 1);
  EXPECT_NEAR(time_of(message, kBytes, options), kLatency + wire(kBytes) + 2 * 5e3, 1);
  options.reduce_bytes_per_second = 2 * kRate;
  const Schedule ring = ring_all_reduce(links(2));
  // Two hops, the first of which reduces half of the data.
  EXPECT_NEAR(time_of(ring, kBytes, options),
              2 * (kLatency + wire(kBytes / 2.0) + 2 * 5e3) + wire(kBytes / 4.0), 1);
}

TEST(Cost, SegmentsBeyondTheMaximumStillCost) {
  const Schedule message = point_to_point(links(2), 0, 1);
  const CostOptions few{
      .segment_bytes = kBytes / 1000, .max_segments = 1, .per_segment = microseconds(1)};
  EXPECT_NEAR(time_of(message, kBytes, few), kLatency + wire(kBytes) + 2 * 1001e3, 1);
}

TEST(Cost, CriticalPathIsAChainToTheEnd) {
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    const Schedule schedule = algorithm.make(links(6), {algorithm.collective, 0, 5});
    const ScheduleCost cost(schedule);
    const Estimate estimate = cost.estimate(links(6), layout_of(schedule, kBytes));
    ASSERT_FALSE(estimate.critical_path.empty());
    const auto interval = [&](OpRef ref) {
      return estimate.ops[static_cast<std::size_t>(ref.rank)][ref.op];
    };
    EXPECT_EQ(interval(estimate.critical_path.back()).end, estimate.total) << schedule.name;
    EXPECT_EQ(interval(estimate.critical_path.front()).begin, Duration::zero()) << schedule.name;
    for (std::size_t i = 1; i < estimate.critical_path.size(); ++i) {
      EXPECT_LE(interval(estimate.critical_path[i - 1]).begin,
                interval(estimate.critical_path[i]).end);
    }
  }
}

TEST(Cost, RingsCriticalPathHasAllHops) {
  const Schedule ring = ring_all_reduce(links(5));
  const ScheduleCost cost(ring);
  const Estimate estimate = cost.estimate(links(5), layout_of(ring, kBytes), kWhole);
  std::size_t hops = 0;
  for (OpRef ref : estimate.critical_path) {
    hops += receives(cost.programs().program(ref.rank).ops[ref.op]) ? 1 : 0;
  }
  EXPECT_EQ(hops, 8u);
}

TEST(Cost, CountsOddSizesExactly) {
  // 10 elements among 4 ranks: chunks of 3, 3, 2 and 2.
  const Schedule ring = ring_all_gather(links(4));
  const Counts counts = ScheduleCost(ring).count(ChunkLayout(4, 10, 4));
  EXPECT_EQ(sum(counts.bytes_sent), 3u * 40u);
  EXPECT_EQ(counts.bytes_sent[0], 4u * (10 - 3));  // All but the chunk of its neighbor, rank 1.
}

TEST(Cost, LargeWorldsAreEstimatedToo) {
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    const Schedule schedule = algorithm.make(links(64), {algorithm.collective, 0, 63});
    const Estimate estimate =
        ScheduleCost(schedule).estimate(links(64), layout_of(schedule, 1 << 26));
    EXPECT_GT(estimate.total, Duration::zero()) << schedule.name;
  }
}

}  // namespace
}  // namespace gradwire::schedule
