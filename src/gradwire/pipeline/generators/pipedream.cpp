#include <algorithm>

#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

/// Micro-batches under way beside the current one, if stage 0 keeps `kept`.
int share_of(int kept, const PipelineOptions& options, Stage stage) {
  const int all = options.ranks - 1;  // In proportion: equal numbers would make stages wait.
  const int later = all - stage;
  return all == 0 ? 0 : ((kept - 1) * later + all - 1) / all;
}

/// A forward and a backward in turn, for ever: the backward of the micro-batch that began `ahead`
/// before.
std::vector<Task> in_turn(Stage stage, int micro_batches, int ahead) {
  std::vector<Task> order;
  for (MicroBatch i = 0; i < micro_batches; ++i) {
    order.push_back({Compute::forward, stage, i});
    const int steps_back = i >= ahead ? 0 : (ahead - i - 1) / micro_batches + 1;
    order.push_back({Compute::backward, stage, i - ahead + steps_back * micro_batches, steps_back});
  }
  return order;
}

}  // namespace

PipelineSchedule pipedream(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  schedule.weights = WeightRule::stash;
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    const int kept = options.kept > 0 ? options.kept : options.ranks;
    const int ahead = share_of(kept, options, stage);
    schedule.order[static_cast<std::size_t>(stage)] = in_turn(stage, options.micro_batches, ahead);
    schedule.weight_bounds.push_back({.staleness = ahead, .kept = ahead + 1});
  }
  schedule.kept = options.kept;
  return schedule;
}

PipelineSchedule two_bw(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  schedule.weights = WeightRule::double_buffer;
  const int first = options.kept > 0 ? options.kept - 1 : micro_batches_under_way(options, 0);
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    const int ahead = share_of(1 + std::min(first, options.micro_batches), options, stage);
    schedule.order[static_cast<std::size_t>(stage)] = in_turn(stage, options.micro_batches, ahead);
    schedule.weight_bounds.push_back({.staleness = 1, .kept = 2});
  }
  schedule.kept = options.kept;
  return schedule;
}

PipelineSchedule with_rule(PipelineSchedule schedule, WeightRule rule) {
  schedule.weights = rule;
  for (WeightBounds& bounds : schedule.weight_bounds) {
    if (rule == WeightRule::newest) bounds.kept = 1;
    if (rule == WeightRule::predict) bounds.kept = 2;
  }
  return schedule;
}

}  // namespace gradwire::pipeline
