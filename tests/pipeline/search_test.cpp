#include "gradwire/pipeline/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/pipeline/verifier.h"
#include "tests/pipeline/schedules.h"

namespace gradwire::pipeline {
namespace {

constexpr int kSearchSteps = 4;

TEST(ScheduleSearch, IsNeverSlowerThanANamedScheduleWithinTheLimits) {
  for (const int ranks : {1, 2, 4, 5}) {
    for (const int micro_batches : {1, 4, 16}) {
      for (const double transfer : {0.0, 0.5, 1.5}) {
        const PipelineOptions options = options_of(ranks, micro_batches, transfer);
        for (const int kept : {1, ranks, 3 * ranks}) {
          const auto found = value_or_throw(
              best_schedule({.ranks = ranks,
                             .micro_batches = micro_batches,
                             .costs = options.costs,
                             .kept = std::vector(static_cast<std::size_t>(ranks), kept)}));
          EXPECT_FALSE(find_fault(found));
          EXPECT_LE(std::ranges::max(kept_by_rank(found)), kept);
          const double seconds = simulate(found, options.costs, kSearchSteps).step_seconds;
          for (const char* name : {"gpipe", "1f1b", "zero_bubble_h1", "zero_bubble"}) {
            const PipelineSchedule named = made(name, options);
            if (std::ranges::max(kept_by_rank(named)) > kept) continue;
            EXPECT_LE(seconds, simulate(named, options.costs, kSearchSteps).step_seconds + 1e-9)
                << name << ' ' << ranks << ' ' << micro_batches << ' ' << transfer << ' ' << kept;
          }
        }
      }
    }
  }
}

/// All orders of one rank: forwards, gradients of inputs and of weights, each in the order of the
/// micro-batches.
void add_orders(Stage stage, int batches, std::array<int, 3> done, std::vector<Task>& order,
                std::vector<std::vector<Task>>& all) {
  if (done[2] == batches) return all.push_back(order);
  constexpr std::array kinds{Compute::forward, Compute::backward_input, Compute::backward_weight};
  for (std::size_t kind = 0; kind < 3; ++kind) {
    if (done[kind] == (kind == 0 ? batches : done[kind - 1])) continue;
    order.push_back({kinds[kind], stage, done[kind]++});
    add_orders(stage, batches, done, order, all);
    --done[kind];
    order.pop_back();
  }
}

/// The fastest of all combinations that do not deadlock.
double optimum(PipelineSchedule schedule, const PipelineCosts& costs, std::size_t rank = 0) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (rank == schedule.order.size()) {
    return find_fault(schedule) ? never : simulate(schedule, costs).step_seconds;
  }
  std::vector<std::vector<Task>> all;
  std::vector<Task> order;
  add_orders(static_cast<Stage>(rank), schedule.micro_batches, {}, order, all);
  double best = never;
  for (auto& each : all) {
    schedule.order[rank] = std::move(each);
    best = std::min(best, optimum(schedule, costs, rank + 1));
  }
  return best;
}

TEST(ScheduleSearch, IsWithinThreePercentOfTheOptimum) {
  for (const auto& [ranks, micro_batches] : {std::pair(2, 2), {2, 3}, {3, 2}, {2, 4}, {3, 3}}) {
    for (const double transfer : {0.0, 0.7}) {
      PipelineOptions options = options_of(ranks, micro_batches, transfer);
      options.costs.stages.assign(static_cast<std::size_t>(ranks), {1, 1.2, 0.7});
      options.costs.stages.front() = {0.8, 0.5, 0.9};
      const auto found = value_or_throw(best_schedule({.ranks = ranks,
                                                       .micro_batches = micro_batches,
                                                       .costs = options.costs,
                                                       .barrier = true}));
      EXPECT_LE(simulate(found, options.costs).step_seconds,
                1.03 * optimum(made("gpipe", options), options.costs))
          << ranks << ' ' << micro_batches << ' ' << transfer;
    }
  }
}

TEST(ScheduleSearch, GivesTheSameForTheSame) {
  const PipelineOptions options = options_of(4, 12, 0.6);
  EXPECT_EQ(to_csv(made("auto", options)), to_csv(made("auto", options)));
}

TEST(ScheduleSearch, RefusesLimitsOfOtherRanks) {
  EXPECT_FALSE(best_schedule({.ranks = 2, .kept = {1, 1, 1}}));
  EXPECT_FALSE(best_schedule({.ranks = 2, .kept = {1, 0}}));
  EXPECT_FALSE(best_schedule({.ranks = 0}));
}

}  // namespace
}  // namespace gradwire::pipeline
