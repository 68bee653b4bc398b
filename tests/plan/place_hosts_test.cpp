#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/plan/place/host_placement.h"
#include "gradwire/plan/place/placed_hosts.h"

namespace gradwire::plan {
namespace {

using ::testing::ElementsAre;

constexpr double kNever = std::numeric_limits<double>::infinity();

HostProblem equal_hosts(int hosts, std::size_t layers) {
  HostProblem problem{.stages = hosts, .micro_batches = 8};
  problem.layers.assign(layers, {.seconds = 0.01, .output_bytes = 1e5, .weight_bytes = 1e6});
  problem.hosts.resize(static_cast<std::size_t>(hosts));
  problem.bytes_per_second.assign(static_cast<std::size_t>(hosts * hosts), 1e9);
  problem.kept.assign(static_cast<std::size_t>(hosts), 1);
  return problem;
}

HostProblem drawn(Random& random, int max_hosts, int max_layers) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return static_cast<double>(random.between(low, high));
  };
  const auto hosts = static_cast<int>(random.between(2, max_hosts));
  const auto stages = static_cast<int>(random.between(2, hosts));
  const auto layers =
      static_cast<std::size_t>(random.between(stages, std::max(stages, max_layers)));
  HostProblem problem{.stages = stages, .micro_batches = static_cast<int>(random.between(1, 12))};
  for (std::size_t i = 0; i < layers; ++i) {
    problem.layers.push_back({.seconds = 1e-3 * draw(0, 100),
                              .output_bytes = 1e4 * draw(0, 100),
                              .weight_bytes = 1e4 * draw(0, 300),
                              .kept_bytes = 1e4 * draw(0, 300)});
  }
  const bool limited = random.one_in(2);
  for (int i = 0; i < hosts; ++i) {
    problem.hosts.push_back(
        {.speed = 0.25 * draw(1, 8), .memory_bytes = limited ? 1e5 * draw(20, 400) : 0});
    for (int j = 0; j < hosts; ++j) problem.bytes_per_second.push_back(1e6 * draw(1, 100));
  }
  for (int s = 0; s < stages; ++s)
    problem.kept.push_back(static_cast<int>(random.between(1, stages - s + 1)));
  return problem;
}

/// T of one placement, from the formulas alone; kNever if it does not fit.
double time_of(const HostProblem& p, const std::vector<int>& hosts,
               const std::vector<std::size_t>& cut) {
  double sum = 0, slowest = 0;
  std::size_t layer = 0;
  for (std::size_t s = 0; s < cut.size(); ++s) {
    const auto host = static_cast<std::size_t>(hosts[s]);
    double compute = 0, weights = 0, kept = 0;
    for (const std::size_t end = layer + cut[s]; layer < end; ++layer) {
      compute += p.layers[layer].seconds;
      weights += p.layers[layer].weight_bytes;
      kept += p.layers[layer].kept_bytes;
    }
    compute /= p.hosts[host].speed;
    const double memory = p.hosts[host].memory_bytes;
    if (memory > 0 && weights * (1 + p.states_per_weight) + kept * p.kept[s] > memory)
      return kNever;
    sum += compute;
    slowest = std::max(slowest, compute);
    if (s + 1 == cut.size()) continue;
    const auto next = static_cast<std::size_t>(hosts[s + 1]);
    const double rate = std::min(p.bytes_per_second[host * p.hosts.size() + next],
                                 p.bytes_per_second[next * p.hosts.size() + host]);
    const double transfer = p.layers[layer - 1].output_bytes / rate;
    sum += 2 * transfer;
    slowest = std::max(slowest, (cut.size() > 2 ? 2 : 1) * transfer);
  }
  return sum + (p.micro_batches - 1) * slowest;
}

/// Calls `visit` with every division of `layers` into `stages` parts.
template <class Visit>
void for_each_cut(std::size_t layers, std::size_t stages, std::vector<std::size_t>& cut,
                  const Visit& visit) {
  if (cut.size() + 1 == stages) {
    cut.push_back(layers);
    visit();
    cut.pop_back();
    return;
  }
  for (std::size_t n = 1; n + (stages - cut.size() - 1) <= layers; ++n) {
    cut.push_back(n);
    for_each_cut(layers - n, stages, cut, visit);
    cut.pop_back();
  }
}

double best_of_all(const HostProblem& p) {
  std::vector<int> hosts(p.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  double best = kNever;
  do {  // Permutations of the unused hosts repeat placements.
    std::vector<std::size_t> cut;
    for_each_cut(p.layers.size(), static_cast<std::size_t>(p.stages), cut,
                 [&] { best = std::min(best, time_of(p, hosts, cut)); });
  } while (std::ranges::next_permutation(hosts).found);
  return best;
}

TEST(PlaceOnHosts, IsAsFastAsTheBestOfAllOrdersAndCuts) {
  int fitting = 0, reordered = 0, left_out = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const HostProblem problem = drawn(random, 5, 8);
    const double best = best_of_all(problem);
    const auto found = place_on_hosts(problem);
    ASSERT_EQ(found.has_value(), std::isfinite(best)) << "seed " << seed;
    if (!found) continue;
    EXPECT_NEAR(found->seconds, best, 1e-9 * best) << "seed " << seed;
    EXPECT_NEAR(time_of(problem, found->hosts, found->cut), found->seconds, 1e-9 * best)
        << "seed " << seed;
    ++fitting;
    reordered += !std::ranges::is_sorted(found->hosts) ? 1 : 0;
    left_out += found->hosts.size() < problem.hosts.size() ? 1 : 0;
  }
  // The draws are worth something.
  EXPECT_GT(fitting, 200);
  EXPECT_GT(reordered, 100);
  EXPECT_GT(left_out, 50);
}

TEST(PlaceOnHosts, EqualHostsGetEqualPartsInTheirOrder) {
  const auto found = place_on_hosts(equal_hosts(4, 12));
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(found->cut, ElementsAre(3, 3, 3, 3));
  EXPECT_NEAR(found->bottleneck, 0.03, 1e-12);
}

TEST(PlaceOnHosts, ASlowHostGetsFewerLayers) {
  HostProblem problem = equal_hosts(4, 14);
  problem.hosts[1].speed = 0.5;
  const auto found = place_on_hosts(problem);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->bottleneck, 0.04, 1e-12);  // 4, 4, 4 and 2 of half the speed.
  const HostPlacement even = placement_of(problem, {0, 1, 2, 3}, {4, 4, 3, 3});
  EXPECT_NEAR(even.bottleneck, 0.08, 1e-12);
}

/// The slow cable of host 2 carries least at an end of the pipeline, behind the narrowest layer.
TEST(PlaceOnHosts, AHostBehindASlowLinkComesWhereItCarriesLeast) {
  HostProblem problem = equal_hosts(4, 8);
  for (std::size_t other = 0; other < 4; ++other)
    problem.bytes_per_second[2 * 4 + other] = problem.bytes_per_second[other * 4 + 2] = 2e6;
  problem.layers[5].output_bytes = 1e3;
  const auto found = place_on_hosts(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->hosts.back(), 2);
  EXPECT_EQ(found->cut.back(), 2u);
}

/// Early stages keep more micro-batches, so the host with the most memory comes first.
TEST(PlaceOnHosts, TheHostWithMoreMemoryKeepsMoreMicroBatches) {
  HostProblem problem = equal_hosts(2, 4);
  for (PipelineLayer& layer : problem.layers) layer.kept_bytes = 1e7;
  problem.kept = {2, 1};
  problem.hosts[0].memory_bytes = 2 * (4e6 + 1e7);
  problem.hosts[1].memory_bytes = 2 * (4e6 + 2e7);
  const auto found = place_on_hosts(problem);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre(1, 0));
  EXPECT_THAT(found->cut, ElementsAre(2, 2));
  EXPECT_DOUBLE_EQ(stage_bytes(problem, 0, 0, 2), 2 * (4e6 + 2e7));
  problem.hosts[1].memory_bytes -= 1;
  EXPECT_THAT(place_on_hosts(problem)->cut, ElementsAre(1, 3)) << "host 0 is last, and has room";
}

/// More hosts than are searched exactly: the placement is never faster than the exact one of the
/// few useful hosts, and as a rule as fast.
TEST(PlaceOnHosts, ManyHostsAreSearchedByExchanges) {
  double worst = 1, sum = 0;
  constexpr int kCases = 12;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Random random(1000 + seed);
    HostProblem problem = drawn(random, 5, 8);
    while (problem.hosts.size() < 5 || problem.hosts[0].memory_bytes > 0)
      problem = drawn(random, 5, 8);
    const double exact = place_on_hosts(problem)->seconds;
    // Hosts that are too slow to be used make it a problem for the heuristic.
    HostProblem many = problem;
    const std::size_t all = kExactHosts + 2, few = problem.hosts.size();
    many.hosts.resize(all, {.speed = 1e-6});
    many.bytes_per_second.assign(all * all, 1);
    for (std::size_t i = 0; i < few; ++i) {
      for (std::size_t j = 0; j < few; ++j)
        many.bytes_per_second[i * all + j] = problem.bytes_per_second[i * few + j];
    }
    const auto found = place_on_hosts(many);
    ASSERT_TRUE(found);
    EXPECT_GE(found->seconds, exact * (1 - 1e-9)) << "seed " << seed;
    worst = std::max(worst, found->seconds / exact);
    sum += found->seconds / exact;
  }
  EXPECT_LT(sum / kCases, 1.05);
  EXPECT_LT(worst, 1.4);
}

PlanInput gpt2_on(int nodes, const char* network) {
  return {.model = model_named("gpt2"),
          .device = device_named("rtx4090"),
          .network = network_named(network),
          .strategy = {.nodes = nodes, .batch = 8}};
}

TEST(PlaceOverHosts, SimulatesTheStepThatItSays) {
  const PlanInput input = gpt2_on(4, "10gbe");
  HostLinks links = hosts_of(input);
  links.hosts[1].speed = 0.5;
  const auto placed = place_over_hosts(input, links);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->cut.size(), placed->hosts.size());
  EXPECT_EQ(std::accumulate(placed->cut.begin(), placed->cut.end(), std::size_t{0}), 14u);
  EXPECT_FALSE(pipeline::find_fault(placed->schedule));
  const double simulated = simulate(placed->schedule, placed->costs, 4).step_seconds;
  EXPECT_GT(placed->step, simulated);
  EXPECT_LT(placed->step, 1.1 * simulated) << "the update";
  // 3.5 hosts' worth of compute against two of them that wait for the slow one.
  EXPECT_GT(placed->even_step, 1.3 * placed->step);
  EXPECT_DOUBLE_EQ(placed->input.strategy.global_batch(), 32);
}

TEST(PlaceOverHosts, KeepsToTheMemoryOfEachHost) {
  const PlanInput input = gpt2_on(3, "10gbe");
  HostLinks links = hosts_of(input);
  links.hosts[0].memory_bytes = 2.5e9;
  links.hosts[1].memory_bytes = 1.5e9;
  const auto placed = place_over_hosts(input, links);
  ASSERT_TRUE(placed);
  for (std::size_t stage = 0; stage < placed->hosts.size(); ++stage)
    EXPECT_LE(placed->memory_bytes[stage], placed->hosts[stage].memory_bytes) << stage;
  const auto roomy = place_over_hosts(input, hosts_of(input));
  EXPECT_LT(roomy->step, placed->step);
  for (PlacementHost& host : links.hosts) host.memory_bytes = 1e8;
  EXPECT_FALSE(place_over_hosts(input, links));
}

TEST(PlaceOverHosts, LeavesOutAHostThatMakesAStepLonger) {
  const PlanInput input = gpt2_on(3, "10gbe");
  HostLinks links = hosts_of(input);
  links.hosts[2].speed = 0.01;
  const auto placed = place_over_hosts(input, links, {"1f1b"});
  ASSERT_TRUE(placed);
  EXPECT_THAT(placed->unused, ElementsAre("host2"));
}

TEST(PlaceOverHosts, TakesTheMeasuredLinks) {
  PlanInput input = gpt2_on(3, "10gbe");
  topology::Topology measured = topology::Topology::uniform(3, {.bytes_per_second = 1e9});
  measured.set_measured(0, 1, {.bytes_per_second = 2e7});
  input.network = network_of(measured);
  const HostLinks links = hosts_of(input);
  EXPECT_DOUBLE_EQ(links.bytes_per_second[1], 2e7);
  EXPECT_DOUBLE_EQ(links.bytes_per_second[3], 1e9);
  const auto placed = place_over_hosts(input, links, {"1f1b"});
  ASSERT_TRUE(placed);
  ASSERT_EQ(placed->hosts.size(), 3u);
  EXPECT_EQ(placed->hosts[1].name, "host2") << "between those with the slow link";
  input.strategy.nodes = 4;
  EXPECT_THROW(hosts_of(input), Exception);
}

}  // namespace
}  // namespace gradwire::plan
