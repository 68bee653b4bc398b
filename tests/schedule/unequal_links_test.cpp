#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/tree_packing.h"
#include "gradwire/schedule/algorithms/uneven.h"
#include "gradwire/schedule/cost/cost.h"

/// Algorithms for hosts and links of different speed, compared with exhaustive search.
namespace gradwire::schedule {
namespace {

using std::chrono::microseconds;

constexpr double kRate = 1.25e8;
constexpr std::size_t kBytes = 96'000'000;

topology::Topology with_rates(const std::vector<double>& rates) {
  std::vector<topology::Link> ports;
  for (double rate : rates) {
    ports.push_back({.latency = microseconds(30), .bytes_per_second = rate});
  }
  return topology::Topology(ports);
}

/// Estimated time in units of G/B.
double relative_time(const Schedule& schedule, const topology::Topology& topology) {
  const Estimate estimate = ScheduleCost(schedule).estimate(
      topology, ChunkLayout(schedule.chunks, kBytes / 4, 4), {.max_segments = 64});
  return static_cast<double>(estimate.total.count()) / (1e9 * kBytes / kRate);
}

TEST(Uneven, IsNearTheBoundWhereOneHostHasHalfTheBandwidth) {
  const topology::Topology topology = with_rates({kRate, kRate, kRate, kRate / 2});
  EXPECT_NEAR(relative_time(ring_all_reduce(topology), topology), 3.0, 0.02);
  EXPECT_NEAR(relative_time(direct_all_reduce(topology), topology), 3.0, 0.02);
  EXPECT_LT(relative_time(uneven_all_reduce(topology), topology), 2.1);
  EXPECT_LT(relative_time(spanning_trees_all_reduce(topology), topology), 2.2);
  EXPECT_DOUBLE_EQ(all_reduce_bound({1, 1, 1, 0.5}), 2);
}

TEST(Uneven, HostsWithSeveralRanksShareOutTheWorkToo) {
  std::vector<topology::Host> hosts(4);
  std::vector<int> host_of;
  for (int host = 0; host < 4; ++host) {
    const double rate = host == 2 ? kRate / 2 : kRate;
    hosts[static_cast<std::size_t>(host)].rails = {
        {.latency = microseconds(30), .bytes_per_second = rate}};
    host_of.insert(host_of.end(), {host, host, host});
  }
  const topology::Topology topology(hosts, host_of);
  EXPECT_LT(relative_time(hierarchical_all_reduce(topology), topology), 2.1);
  EXPECT_GT(relative_time(ring_all_reduce(topology), topology), 3.5);
}

/// Calls `visit` with all ways to write `total` as a sum of `parts` numbers.
void for_all_sums(int total, std::size_t parts, std::vector<int>& chosen,
                  const std::function<void()>& visit) {
  if (chosen.size() + 1 == parts) {
    chosen.push_back(total);
    visit();
    chosen.pop_back();
    return;
  }
  for (int first = 0; first <= total; ++first) {
    chosen.push_back(first);
    for_all_sums(total - first, parts, chosen, visit);
    chosen.pop_back();
  }
}

double time_with_shares(const std::vector<double>& shares, const std::vector<double>& rates) {
  double longest = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double carried = 1 + (static_cast<double>(rates.size()) - 2) * shares[i];
    longest = std::max(longest, carried / rates[i]);
  }
  return longest;
}

TEST(Uneven, NoSharesAreBetter) {
  Random random(3);
  for (int repetition = 0; repetition < 60; ++repetition) {
    std::vector<double> rates(static_cast<std::size_t>(random.between(3, 5)));
    for (double& rate : rates) rate = static_cast<double>(random.between(1, 10));
    const std::vector<double> shares = uneven_shares(rates);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
    EXPECT_GE(std::ranges::min(shares), 0);
    const double ours = time_with_shares(shares, rates);
    EXPECT_NEAR(ours, all_reduce_bound(rates), 1e-6 * ours);
    double best = 1e9;
    std::vector<int> chosen;
    for_all_sums(20, rates.size(), chosen, [&] {
      std::vector<double> tried;
      for (int twentieths : chosen) tried.push_back(twentieths / 20.0);
      best = std::min(best, time_with_shares(tried, rates));
    });
    EXPECT_GE(best, ours * (1 - 1e-9));
    EXPECT_LE(best, ours * 1.2);  // The resolution of the grid.
  }
}

TEST(Uneven, SchedulesComeNearTheBoundForAnyPorts) {
  Random random(5);
  for (int repetition = 0; repetition < 30; ++repetition) {
    std::vector<double> rates(static_cast<std::size_t>(random.between(2, 9)));
    for (double& rate : rates) rate = kRate * static_cast<double>(random.between(2, 10)) / 10;
    const topology::Topology topology = with_rates(rates);
    std::vector<double> relative;
    for (double rate : rates) relative.push_back(rate / kRate);
    const double time = relative_time(uneven_all_reduce(topology), topology);
    EXPECT_LE(time, 1.12 * all_reduce_bound(relative));
    EXPECT_GE(time, 0.999 * all_reduce_bound(relative));
  }
}

/// The tree of a Pruefer sequence of length n-2.
HostTree tree_of(const std::vector<int>& sequence) {
  const std::size_t n = sequence.size() + 2;
  std::vector<int> degree(n, 1);
  for (int host : sequence) ++degree[static_cast<std::size_t>(host)];
  std::vector<std::vector<int>> neighbors(n);
  const auto join = [&](std::size_t a, std::size_t b) {
    neighbors[a].push_back(static_cast<int>(b));
    neighbors[b].push_back(static_cast<int>(a));
    --degree[a];
    --degree[b];
  };
  for (int host : sequence) {
    const auto leaf = static_cast<std::size_t>(std::ranges::find(degree, 1) - degree.begin());
    join(leaf, static_cast<std::size_t>(host));
  }
  const auto one = static_cast<std::size_t>(std::ranges::find(degree, 1) - degree.begin());
  const auto other = static_cast<std::size_t>(
      std::find(degree.begin() + static_cast<std::ptrdiff_t>(one) + 1, degree.end(), 1) -
      degree.begin());
  join(one, other);
  HostTree tree{std::vector<int>(n, -1), {0}};
  for (std::size_t i = 0; i < tree.order.size(); ++i) {
    const int host = tree.order[i];
    for (int next : neighbors[static_cast<std::size_t>(host)]) {
      if (next == tree.parent[static_cast<std::size_t>(host)]) continue;
      tree.parent[static_cast<std::size_t>(next)] = host;
      tree.order.push_back(next);
    }
  }
  return tree;
}

std::vector<HostTree> all_trees_of_four() {
  std::vector<HostTree> trees;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) trees.push_back(tree_of({a, b}));
  }
  return trees;
}

/// Minimum time over all sets of one to four trees.
double best_time(const topology::Topology& topology) {
  const std::vector<HostTree> all = all_trees_of_four();
  double best = 1e9;
  const auto n = all.size();
  for (std::size_t a = 0; a < n; ++a) {
    best = std::min(best, time_of_trees(topology, {all[a]}));
    for (std::size_t b = a; b < n; ++b) {
      best = std::min(best, time_of_trees(topology, {all[a], all[b]}));
      for (std::size_t c = b; c < n; ++c) {
        best = std::min(best, time_of_trees(topology, {all[a], all[b], all[c]}));
        for (std::size_t d = c; d < n; ++d) {
          best = std::min(best, time_of_trees(topology, {all[a], all[b], all[c], all[d]}));
        }
      }
    }
  }
  return best;
}

TEST(SpanningTrees, AreNearlyTheBestOfAllFourTreesOverFourHosts) {
  ASSERT_EQ(all_trees_of_four().size(), 16u);  // Cayley: n^(n-2).
  Random random(7);
  double worst = 0;
  for (int repetition = 0; repetition < 40; ++repetition) {
    std::vector<double> rates(4);
    for (double& rate : rates) rate = static_cast<double>(random.between(2, 10));
    topology::Topology topology = with_rates(rates);
    for (int from = 0; from < 4; ++from) {
      for (int to = from + 1; to < 4; ++to) {
        if (repetition % 2 == 0 || random.one_in(3)) continue;
        const topology::Link wire{.bytes_per_second = static_cast<double>(random.between(1, 8))};
        topology.set_measured(from, to, wire);
        topology.set_measured(to, from, wire);
      }
    }
    const double ours = time_of_trees(topology, pack_trees(topology));
    const double best = best_time(topology);
    worst = std::max(worst, ours / best);
    EXPECT_LE(ours, 1.15 * best) << repetition;
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST(SpanningTrees, AvoidASlowWire) {
  // For example a ring of four hosts whose two other links are slow.
  topology::Topology topology = with_rates({kRate, kRate, kRate, kRate});
  for (const auto& [a, b] : {std::pair(0, 2), std::pair(1, 3)}) {
    topology.set_measured(a, b, {.bytes_per_second = kRate / 20});
    topology.set_measured(b, a, {.bytes_per_second = kRate / 20});
  }
  for (const HostTree& tree : pack_trees(topology)) {
    for (int host = 0; host < 4; ++host) {
      const int above = tree.parent[static_cast<std::size_t>(host)];
      EXPECT_TRUE(above < 0 || (host - above + 4) % 4 != 2);
    }
  }
  EXPECT_LT(relative_time(spanning_trees_all_reduce(topology), topology), 2.0);
  EXPECT_GT(relative_time(direct_all_reduce(topology), topology), 5.0);
}

}  // namespace
}  // namespace gradwire::schedule
