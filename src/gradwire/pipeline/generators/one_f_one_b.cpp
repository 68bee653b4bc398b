#include <algorithm>
#include <cmath>

#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

int micro_batches_under_way(const PipelineOptions& options, Stage stage) {
  double period = 0;
  for (Stage each = 0; each < options.ranks; ++each) {
    const StageCosts costs = options.costs.of(each);
    period = std::max(period, costs.forward + costs.of(Compute::backward));
  }
  int under_way = 0;
  for (Stage each = stage; each + 1 < options.ranks; ++each) {
    const double transfer = options.costs.transfer_between(each, each + 1) + options.costs.latency;
    // Transfers that would take less than a hundredth of the step are not worth the memory.
    const double hidden = transfer == 0 ? 0 : std::ceil(2 * transfer / period - 0.01);
    under_way += 1 + static_cast<int>(std::min<double>(hidden, options.micro_batches));
  }
  return under_way;
}

namespace {

/// Forwards before the first backward of a stage.
int warm_up_of(const PipelineOptions& options, Stage stage) {
  const int warm_up = std::min(1 + micro_batches_under_way(options, stage), options.micro_batches);
  return options.kept > 0 ? std::clamp(options.kept - stage, 1, warm_up) : warm_up;
}

}  // namespace

PipelineSchedule one_f_one_b(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    auto& order = schedule.order[static_cast<std::size_t>(stage)];
    MicroBatch next = 0;
    const auto forward = [&] { order.push_back({Compute::forward, stage, next++}); };
    while (next < warm_up_of(options, stage)) forward();
    for (MicroBatch i = 0; i < options.micro_batches; ++i) {
      order.push_back({Compute::backward, stage, i});
      if (next < options.micro_batches) forward();
    }
  }
  schedule.kept = options.kept;
  return schedule;
}

}  // namespace gradwire::pipeline
