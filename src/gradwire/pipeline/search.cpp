#include "gradwire/pipeline/search.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/random.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/generators/generators.h"
#include "gradwire/pipeline/verifier.h"

namespace gradwire::pipeline {
namespace {

/// Simulated tasks over all trials, and the farthest move of a task.
constexpr std::size_t kTaskBudget = 1'000'000;
constexpr int kFarthest = 6;
/// Numbers of micro-batches to keep that are tried for one generator.
constexpr int kNumbers = 24;
constexpr double kFaster = 1 - 1e-9;
constexpr std::uint64_t kSeed = 31;

struct Found {
  PipelineSchedule schedule;
  double seconds = 0;
  int kept = 0;  ///< Over all ranks.

  bool better_than(const Found& other) const {
    if (seconds < kFaster * other.seconds) return true;
    return kFaster * seconds <= other.seconds && kept < other.kept;
  }
};

class Searcher {
 public:
  explicit Searcher(const ScheduleSearch& search) : search_(search) {
    const int largest = search.kept.empty() ? search.micro_batches : std::ranges::max(search.kept);
    max_kept_ = std::min(largest, search.micro_batches);
  }

  PipelineSchedule run() {
    consider_generators();
    improve();
    best_->schedule.kept = std::ranges::max(kept_by_rank(best_->schedule));
    return std::move(best_->schedule);
  }

 private:
  void consider_generators() {
    for (const char* name : {"gpipe", "zero_bubble_h1", "1f1b", "zero_bubble"}) consider(name, 0);
    const int apart = (max_kept_ + kNumbers - 1) / kNumbers;
    for (int kept = 1; kept <= max_kept_; kept += apart) consider_kept(kept);
    consider_kept(max_kept_);
  }

  void consider_kept(int kept) {
    consider("1f1b", kept);
    consider("zero_bubble", kept);
    consider_greedy(kept, 0);
    consider_greedy(kept, 1);
  }

  /// Each rank keeps as many as it may, but at most `kept`, and `fewer` less than the rank before.
  void consider_greedy(int kept, int fewer) {
    std::vector<int> limits;
    for (Rank rank = 0; rank < search_.ranks; ++rank) {
      const int limit = search_.kept.empty() ? search_.micro_batches
                                             : search_.kept[static_cast<std::size_t>(rank)];
      limits.push_back(std::clamp(kept - fewer * rank, 1, limit));
    }
    PipelineSchedule schedule = order_greedily(
        without_order({.ranks = search_.ranks, .micro_batches = search_.micro_batches}),
        search_.costs, limits);
    schedule.name = fmt::format("greedy:{}", fmt::join(limits, "/"));
    take_if_better(std::move(schedule));
  }

  void consider(const char* name, int kept) {
    PipelineSchedule schedule = value_or_throw(make_pipeline(
        kept > 0 ? fmt::format("{}:{}", name, kept) : std::string(name),
        {.ranks = search_.ranks, .micro_batches = search_.micro_batches, .costs = search_.costs}));
    take_if_better(std::move(schedule));
  }

  bool take_if_better(PipelineSchedule schedule) {
    schedule.kept = 0;
    schedule.barrier = search_.barrier;
    const std::vector<int> kept = kept_by_rank(schedule);
    for (std::size_t rank = 0; rank < search_.kept.size(); ++rank) {
      if (kept[rank] > search_.kept[rank]) return false;
    }
    const double seconds = simulate(schedule, search_.costs, steps()).step_seconds;
    int all = 0;
    for (const int each : kept) all += each;
    Found found{std::move(schedule), seconds, all};
    if (best_ && !found.better_than(*best_)) return false;
    best_ = std::move(found);
    return true;
  }

  /// Moves one task of a rank a few places.
  void improve() {
    std::size_t tasks = 0;
    for (const auto& order : best_->schedule.order) tasks += order.size();
    const std::size_t affordable = kTaskBudget / (tasks * static_cast<std::size_t>(steps()));
    const std::size_t trials = std::min(static_cast<std::size_t>(search_.trials), affordable);
    Random random(kSeed);
    for (std::size_t i = 0; i < trials; ++i) {
      PipelineSchedule changed = best_->schedule;
      auto& order = changed.order[random.below(static_cast<std::uint64_t>(search_.ranks))];
      const std::size_t from = random.below(order.size());
      const std::size_t to = std::min(order.size() - 1, from + 1 + random.below(kFarthest));
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(to) + 1;
      const bool later = random.one_in(2);
      std::rotate(begin, later ? begin + 1 : end - 1, end);
      if (find_fault(changed)) continue;
      if (take_if_better(std::move(changed)) && !best_->schedule.name.ends_with(" improved")) {
        best_->schedule.name += " improved";
      }
    }
  }

  int steps() const { return search_.barrier ? 1 : search_.steps; }

  const ScheduleSearch& search_;
  int max_kept_ = 1;
  std::optional<Found> best_;
};

}  // namespace

Result<PipelineSchedule> best_schedule(const ScheduleSearch& search) {
  const auto ranks = static_cast<std::size_t>(std::max(search.ranks, 0));
  const auto right = [&](std::size_t size) { return size == 0 || size == ranks; };
  if (ranks == 0 || search.micro_batches < 1 || search.steps < 1 || !right(search.kept.size()) ||
      !right(search.costs.stages.size()) ||
      std::ranges::any_of(search.kept, [](int kept) { return kept < 1; })) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("search of a schedule for {} ranks and {} micro-batches, with costs of {} "
                    "stages and limits of {} ranks: expected 1 or more ranks, micro-batches and "
                    "kept micro-batches, and costs and limits for each rank or none",
                    search.ranks, search.micro_batches, search.costs.stages.size(),
                    search.kept.size()));
  }
  return Searcher(search).run();
}

PipelineSchedule searched(const PipelineOptions& options) {
  const int kept = options.kept > 0 ? options.kept : 2 * options.ranks;
  return value_or_throw(
      best_schedule({.ranks = options.ranks,
                     .micro_batches = options.micro_batches,
                     .costs = options.costs,
                     .kept = std::vector(static_cast<std::size_t>(options.ranks), kept)}));
}

}  // namespace gradwire::pipeline
