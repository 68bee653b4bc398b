#include "gradwire/pipeline/weight_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/pipeline/catalogue.h"

namespace gradwire::pipeline {
namespace {

constexpr std::array<std::string_view, 8> kMethods{
    "flush", "stash", "2bw", "spectrain", "lwp_v", "lwp_w", "spike_compensation", "newest"};

/// One stage while its rank runs the order step by step.
class StageHistory {
 public:
  StageHistory(const PipelineSchedule& schedule, Stage stage)
      : schedule_(schedule), stage_(stage), rule_(schedule.weights) {}

  Status run() {
    const Rank rank = schedule_.rank_of[static_cast<std::size_t>(stage_)];
    const auto& order = schedule_.order[static_cast<std::size_t>(rank)];
    const std::vector<bool> updates = tasks_before_updates(schedule_, rank);
    // All delays are over, and every version in use is from after the beginning.
    const int steps = 3 * (max_delay(schedule_) + 1);
    for (int period = 0; period < steps; ++period) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        const Task& task = order[i];
        if (task.stage != stage_ || task.delay > period) continue;
        GRADWIRE_RETURN_IF_ERROR(run_task(task, period - task.delay, period + 1 == steps));
        if (updates[i]) update();
      }
    }
    return {};
  }

  WeightBounds bounds() const {
    const int predicted = rule_ == WeightRule::predict ? 1 : 0;
    return {staleness_.value_or(0), max_kept_ + predicted};
  }

 private:
  Status run_task(const Task& task, int step, bool steady) {
    const std::pair key(step, task.micro_batch);
    if (completes_gradients(task)) {
      in_use_.erase(key);
    } else if (task.compute == Compute::forward) {
      const int version = version_for(step);
      if (version > versions_) {
        return failure(ErrorKind::invalid_argument,
                       fmt::format("{} needs the weights after {} updates, but only {} are done",
                                   name_of(task), version, versions_));
      }
      in_use_[key] = version;
      count_copies();
      if (steady) return note_staleness(task, updates_before(step, task.micro_batch) - version);
    }
    return {};
  }

  int version_for(int step) const {
    return rule_ == WeightRule::double_buffer ? std::max(step - 1, 0) : versions_;
  }

  /// The number of updates before the one that the micro-batch's gradient belongs to.
  int updates_before(int step, MicroBatch micro_batch) const {
    return updates_each_micro_batch(rule_) ? step * schedule_.micro_batches + micro_batch : step;
  }

  Status note_staleness(const Task& task, int staleness) {
    if (staleness_.value_or(staleness) != staleness) {
      return failure(ErrorKind::invalid_argument,
                     fmt::format("{} is stale by {} updates, other micro-batches by {}",
                                 name_of(task), staleness, *staleness_));
    }
    staleness_ = staleness;
    return {};
  }

  void update() {
    ++versions_;
    count_copies();
  }

  void count_copies() {
    std::set<int> versions{versions_};
    if (rule_ == WeightRule::double_buffer) versions.insert(std::max(versions_ - 1, 0));
    const bool keeps_versions = rule_ != WeightRule::newest && rule_ != WeightRule::predict;
    if (keeps_versions) {
      for (const auto& [key, version] : in_use_) versions.insert(version);
    }
    max_kept_ = std::max(max_kept_, static_cast<int>(versions.size()));
  }

  const PipelineSchedule& schedule_;
  Stage stage_;
  WeightRule rule_;
  int versions_ = 0;                                  ///< Updates so far.
  std::map<std::pair<int, MicroBatch>, int> in_use_;  ///< By step and micro-batch: its version.
  std::optional<int> staleness_;
  int max_kept_ = 1;
};

}  // namespace

std::string_view name_of(WeightMethod method) {
  return kMethods[static_cast<std::size_t>(method)];
}

Result<WeightMethod> weight_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name);
  if (found != kMethods.end()) return static_cast<WeightMethod>(found - kMethods.begin());
  return failure(ErrorKind::invalid_argument,
                 unknown_name("rule for weights", name, {kMethods.begin(), kMethods.end()}));
}

Result<WeightMethod> weight_method_for(std::string_view schedule, std::string_view weights) {
  GRADWIRE_ASSIGN_OR_RETURN(const PipelineSchedule made, make_pipeline(schedule, {}));
  const WeightRule own = made.weights;
  const WeightMethod usual = own == WeightRule::flush   ? WeightMethod::flush
                             : own == WeightRule::stash ? WeightMethod::stash
                                                        : WeightMethod::two_bw;
  if (weights.empty()) return usual;
  GRADWIRE_ASSIGN_OR_RETURN(const WeightMethod method, weight_method(weights));
  const bool by_step = !updates_each_micro_batch(own);
  if (by_step ? method == usual : updates_each_micro_batch(rule_of(method))) return method;
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("weights {} do not go with the schedule {}: flush goes with synchronous "
                  "schedules, 2bw with 2bw, all others with pipedream",
                  weights, schedule));
}

WeightRule rule_of(WeightMethod method) {
  switch (method) {
    case WeightMethod::flush:
      return WeightRule::flush;
    case WeightMethod::stash:
      return WeightRule::stash;
    case WeightMethod::two_bw:
      return WeightRule::double_buffer;
    case WeightMethod::spectrain:
    case WeightMethod::lwp_v:
    case WeightMethod::lwp_w:
      return WeightRule::predict;
    case WeightMethod::spike_compensation:
    case WeightMethod::newest:
      break;
  }
  return WeightRule::newest;
}

bool completes_gradients(const Task& task) {
  return task.compute == Compute::backward || task.compute == Compute::backward_weight;
}

std::vector<bool> tasks_before_updates(const PipelineSchedule& schedule, Rank rank) {
  const auto& order = schedule.order[static_cast<std::size_t>(rank)];
  std::vector<bool> updates(order.size(), false);
  std::map<Stage, std::pair<int, std::size_t>> last;  // By stage: delay and place.
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!completes_gradients(order[i])) continue;
    updates[i] = updates_each_micro_batch(schedule.weights);
    auto& latest = last.try_emplace(order[i].stage, order[i].delay, i).first->second;
    latest = std::max(latest, std::pair(order[i].delay, i));
  }
  for (const auto& [stage, latest] : last) updates[latest.second] = true;
  return updates;
}

Result<std::vector<WeightBounds>> weights_of(const PipelineSchedule& schedule) {
  std::vector<WeightBounds> all;
  for (Stage stage = 0; stage < schedule.stages(); ++stage) {
    StageHistory history(schedule, stage);
    GRADWIRE_RETURN_IF_ERROR(history.run());
    all.push_back(history.bounds());
  }
  return all;
}

}  // namespace gradwire::pipeline
