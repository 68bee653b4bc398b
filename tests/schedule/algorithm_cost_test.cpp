#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/cost/cost.h"
#include "tests/schedule/textbook_links.h"

/// Steps, bytes and times of the algorithms, compared with textbook formulas, which the cost model
/// does not use. (Ring, direct, tree and recursive doubling: cost_test.cpp.)
namespace gradwire::schedule {
namespace {

using std::chrono::microseconds;

using test::kLatency;
using test::kRate;
using test::links;
using test::wire;

unsigned floor_log2(int n) {
  return static_cast<unsigned>(std::bit_width(static_cast<unsigned>(n)) - 1);
}

unsigned ceil_log2(int n) {
  return static_cast<unsigned>(std::bit_width(static_cast<unsigned>(n - 1)));
}

std::size_t sum(const std::vector<std::size_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::size_t{0});
}

class AnyRanks : public testing::TestWithParam<int> {
 protected:
  int p() const { return GetParam(); }
  std::size_t others() const { return static_cast<std::size_t>(p() - 1); }
  /// Bytes of one rank's part, and of all data, which also divides evenly by two.
  std::size_t part() const { return 4096; }
  std::size_t whole() const { return part() * static_cast<std::size_t>(p()); }
  bool power_of_two() const { return std::has_single_bit(static_cast<unsigned>(p())); }

  ChunkLayout layout(const Schedule& schedule, std::size_t bytes) const {
    return {schedule.chunks, bytes / 4, 4};
  }
  Counts counts(const Schedule& schedule) const {
    return ScheduleCost(schedule).count(layout(schedule, whole()));
  }
  /// Without segmentation of messages, as in the textbook.
  double time(const Schedule& schedule, std::size_t bytes) const {
    const CostOptions options{.segment_bytes = std::numeric_limits<std::size_t>::max() / 2,
                              .max_segments = 1};
    const Estimate estimate =
        ScheduleCost(schedule).estimate(links(p()), layout(schedule, bytes), options);
    return static_cast<double>(estimate.total.count());
  }

  void expect_each_sends(const Counts& counts, std::size_t bytes) const {
    for (std::size_t sent : counts.bytes_sent) EXPECT_EQ(sent, bytes);
  }
};

TEST_P(AnyRanks, HalvingDoublingTakesTwoLogPStepsAndTheLeastBytes) {
  const Schedule schedule = halving_doubling_all_reduce(links(p()));
  const Counts counted = counts(schedule);
  // With some numbers of ranks, ranks without a counterpart save a step.
  EXPECT_LE(counted.steps, 2 * ceil_log2(p()));
  EXPECT_GE(counted.steps, 2 * floor_log2(p()));
  EXPECT_EQ(sum(counted.bytes_sent), 2 * others() * whole());
  EXPECT_NEAR(time(schedule, 0), counted.steps * kLatency, 1);
  const double min_time =
      2 * ceil_log2(p()) * kLatency + 2 * wire(static_cast<double>(others() * part()));
  if (power_of_two()) {
    expect_each_sends(counted, 2 * others() * part());
    EXPECT_NEAR(time(schedule, whole()), min_time, 1);
  }
  EXPECT_LE(time(schedule, whole()), min_time + 1.5 * wire(static_cast<double>(whole())));
}

TEST_P(AnyRanks, HalvingAndDoublingTakeLogPStepsEach) {
  for (const Schedule& half :
       {recursive_halving_reduce_scatter(links(p())), recursive_doubling_all_gather(links(p()))}) {
    const Counts counted = counts(half);
    EXPECT_LE(counted.steps, ceil_log2(p()));
    EXPECT_GE(counted.steps, floor_log2(p()));
    EXPECT_EQ(sum(counted.bytes_sent), others() * whole());
    if (!power_of_two()) continue;
    expect_each_sends(counted, others() * part());
    EXPECT_NEAR(time(half, whole()),
                ceil_log2(p()) * kLatency + wire(static_cast<double>(others() * part())), 1);
  }
}

TEST_P(AnyRanks, BruckTakesLogPStepsAndSendsEvenly) {
  const Schedule schedule = bruck_all_gather(links(p()));
  const Counts counted = counts(schedule);
  EXPECT_EQ(counted.steps, ceil_log2(p()));
  expect_each_sends(counted, others() * part());
  EXPECT_NEAR(time(schedule, 0), ceil_log2(p()) * kLatency, 1);
}

TEST_P(AnyRanks, DoubleTreeTakesTheTreesStepsAndSharesTheLoad) {
  const Schedule schedule = double_tree_all_reduce(links(p()));
  const Counts counted = counts(schedule);
  EXPECT_EQ(counted.steps, 2 * floor_log2(p()));
  EXPECT_EQ(sum(counted.bytes_sent), 2 * others() * whole());
  EXPECT_NEAR(time(schedule, 0), 2 * floor_log2(p()) * kLatency, 1);
  // No rank has children in both trees: half the data up twice, and down at most twice.
  for (std::size_t sent : counted.bytes_sent) EXPECT_LE(sent, 2 * whole());
}

TEST_P(AnyRanks, StarPutsEverythingOnTheServersPort) {
  const Schedule schedule = star_all_reduce(links(p()));
  const Counts counted = counts(schedule);
  EXPECT_EQ(counted.steps, p() > 1 ? 2u : 0u);
  EXPECT_EQ(counted.bytes_sent[0], others() * whole());
  for (std::size_t rank = 1; rank <= others(); ++rank) EXPECT_EQ(counted.bytes_sent[rank], whole());
  const double hops = p() > 1 ? 2 : 0;
  EXPECT_NEAR(time(schedule, whole()),
              hops * (kLatency + wire(static_cast<double>(others() * whole()))), 1);
}

TEST_P(AnyRanks, ExchangeTakesOneStep) {
  const Schedule schedule = exchange_all_reduce(links(p()));
  const Counts counted = counts(schedule);
  EXPECT_EQ(counted.steps, p() > 1 ? 1u : 0u);
  expect_each_sends(counted, others() * whole());
  const double hops = p() > 1 ? 1 : 0;
  EXPECT_NEAR(time(schedule, whole()),
              hops * kLatency + wire(static_cast<double>(others() * whole())), 1);
}

TEST_P(AnyRanks, EqualPortsMakeUnevenTheDirectOne) {
  const Counts uneven = counts(uneven_all_reduce(links(p())));
  const Counts direct = counts(direct_all_reduce(links(p())));
  EXPECT_EQ(uneven.steps, direct.steps);
  EXPECT_EQ(uneven.bytes_sent, direct.bytes_sent);
}

TEST_P(AnyRanks, ReductionsToOneRankMoveTheDataOnceAnEdge) {
  const Rank root = p() / 2;
  const Counts tree = counts(tree_reduce(links(p()), root));
  EXPECT_EQ(tree.steps, floor_log2(p()));
  const Counts chain = counts(ring_reduce(links(p()), root));
  EXPECT_EQ(chain.steps, static_cast<unsigned>(p() - 1));
  const Counts direct = counts(direct_reduce(links(p()), root));
  EXPECT_EQ(direct.steps, p() > 1 ? 1u : 0u);
  for (const Counts& counted : {tree, chain, direct}) {
    EXPECT_EQ(sum(counted.bytes_sent), others() * whole());
    EXPECT_EQ(counted.bytes_sent[static_cast<std::size_t>(root)], 0u);
  }
  EXPECT_NEAR(time(direct_reduce(links(p()), root), whole()),
              (p() > 1 ? kLatency : 0) + wire(static_cast<double>(others() * whole())), 1);
}

TEST_P(AnyRanks, DirectGatherAndScatterTakeOneStep) {
  const Rank root = p() / 2;
  const double hop = p() > 1 ? kLatency : 0;
  for (const Schedule& schedule :
       {direct_gather(links(p()), root), direct_scatter(links(p()), root)}) {
    const Counts counted = counts(schedule);
    EXPECT_EQ(counted.steps, p() > 1 ? 1u : 0u);
    EXPECT_EQ(sum(counted.bytes_sent), others() * part());
    EXPECT_NEAR(time(schedule, whole()), hop + wire(static_cast<double>(others() * part())), 1);
  }
}

TEST_P(AnyRanks, BinomialTreesTakeAStepForEachBitOfAPlace) {
  const Rank root = p() / 2;
  unsigned max_bits = 0;
  std::size_t bits = 0;
  for (unsigned place = 0; place < static_cast<unsigned>(p()); ++place) {
    max_bits = std::max(max_bits, static_cast<unsigned>(std::popcount(place)));
    bits += static_cast<std::size_t>(std::popcount(place));
  }
  for (const Schedule& schedule :
       {binomial_gather(links(p()), root), binomial_scatter(links(p()), root)}) {
    const Counts counted = counts(schedule);
    EXPECT_EQ(counted.steps, max_bits);
    EXPECT_LE(counted.steps, ceil_log2(p()));
    // A part is sent as often as its position has one bits.
    EXPECT_EQ(sum(counted.bytes_sent), bits * part());
  }
  const Counts down = counts(binomial_broadcast(links(p()), root));
  EXPECT_EQ(down.steps, max_bits);
  EXPECT_EQ(sum(down.bytes_sent), others() * whole());
  // A rank that has the data sends it to one child after the other, the largest subtree first:
  // ceil(log P) rounds, in the last of which the latency of others has passed.
  EXPECT_LE(time(binomial_broadcast(links(p()), root), whole()),
            ceil_log2(p()) * (kLatency + wire(static_cast<double>(whole()))) + 1);
}

TEST_P(AnyRanks, AllToAllMovesEveryPartOnce) {
  const Schedule direct = direct_all_to_all(links(p()));
  const Schedule pairwise = pairwise_all_to_all(links(p()));
  EXPECT_EQ(counts(direct).steps, p() > 1 ? 1u : 0u);
  EXPECT_EQ(counts(pairwise).steps, static_cast<unsigned>(p() - 1));
  for (const Schedule& schedule : {direct, pairwise}) {
    expect_each_sends(counts(schedule), others() * part());
  }
  const double hop = p() > 1 ? kLatency : 0;
  EXPECT_NEAR(time(direct, whole()), hop + wire(static_cast<double>(others() * part())), 1);
  EXPECT_NEAR(time(pairwise, whole()),
              static_cast<double>(others()) * (kLatency + wire(static_cast<double>(part()))), 1);
}

INSTANTIATE_TEST_SUITE_P(OneToSeventy, AnyRanks, testing::Range(1, 71));
INSTANTIATE_TEST_SUITE_P(More, AnyRanks, testing::Values(100, 127, 128));

/// Bytes that each host sends.
std::vector<std::size_t> bytes_out_of_hosts(const Schedule& schedule,
                                            const topology::Topology& topology, std::size_t bytes) {
  const ChunkLayout layout(schedule.chunks, bytes / 4, 4);
  std::vector<std::size_t> out(static_cast<std::size_t>(topology.hosts()));
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    const Program program = schedule.program(rank);
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::send || topology.same_host(rank, op.peer)) continue;
      out[static_cast<std::size_t>(topology.host_of(rank))] += layout.size(op.src, program);
    }
  }
  return out;
}

/// `hosts` hosts with `ranks` ranks each, assigned round-robin.
topology::Topology dealt_out(int hosts, int ranks) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * ranks; ++rank) host_of.push_back(rank % hosts);
  return topology::Topology(std::vector<topology::Host>(static_cast<std::size_t>(hosts)), host_of);
}

TEST(OnHosts, HierarchicalCrossesAsIfEachHostHadOneRank) {
  for (int hosts = 1; hosts <= 6; ++hosts) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const topology::Topology topology = dealt_out(hosts, ranks);
      const std::size_t bytes = 4096u * static_cast<std::size_t>(hosts * ranks);
      const Schedule schedule = hierarchical_all_reduce(topology);
      const std::size_t min_bytes =
          2 * bytes / static_cast<std::size_t>(hosts) * static_cast<std::size_t>(hosts - 1);
      for (std::size_t out : bytes_out_of_hosts(schedule, topology, bytes))
        EXPECT_EQ(out, min_bytes);
      const unsigned steps = (hosts > 1 ? 2 : 0) + (ranks > 1 ? 2 : 0);
      EXPECT_EQ(ScheduleCost(schedule).count({schedule.chunks, bytes / 4, 4}).steps, steps);
    }
  }
}

TEST(OnHosts, RingEntersAndLeavesEachHostOnce) {
  const topology::Topology topology = dealt_out(4, 3);
  const std::size_t bytes = 12u * 4096u;
  for (std::size_t out : bytes_out_of_hosts(ring_all_reduce(topology), topology, bytes)) {
    EXPECT_EQ(out, 2 * 11 * bytes / 12);
  }
}

TEST(OnHosts, HostTreesCrossOnceAHost) {
  for (int hosts = 1; hosts <= 6; ++hosts) {
    const topology::Topology topology = dealt_out(hosts, 4);
    for (Rank root : {0, hosts + 1, 4 * hosts - 1}) {
      for (const Schedule& schedule :
           {host_tree_broadcast(topology, root), host_tree_reduce(topology, root)}) {
        const std::vector<std::size_t> out = bytes_out_of_hosts(schedule, topology, 4096);
        EXPECT_EQ(sum(out), 4096u * static_cast<std::size_t>(hosts - 1));
        // One level inside a host, also below a leaf of the tree.
        const unsigned steps = ScheduleCost(schedule).count({1, 1, 4}).steps;
        EXPECT_EQ(steps, floor_log2(hosts) + 1);
      }
    }
  }
}

TEST(OnHosts, LeadersSendOneMessageAcrossToEachHost) {
  const topology::Topology topology = dealt_out(3, 4);
  const Schedule schedule = leaders_all_reduce(topology);
  EXPECT_EQ(ScheduleCost(schedule).count({1, 1, 4}).steps, 3u);
  for (std::size_t out : bytes_out_of_hosts(schedule, topology, 4096)) EXPECT_EQ(out, 2u * 4096u);
}

}  // namespace
}  // namespace gradwire::schedule
