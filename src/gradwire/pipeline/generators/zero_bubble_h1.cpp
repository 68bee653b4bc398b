#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule zero_bubble_h1(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    auto& order = schedule.order[static_cast<std::size_t>(stage)];
    MicroBatch next = 0;
    MicroBatch weights = 0;
    const auto forward = [&] {
      if (next < options.micro_batches) order.push_back({Compute::forward, stage, next++});
    };
    for (int i = 0; i < options.ranks - stage; ++i) forward();
    for (MicroBatch i = 0; i < options.micro_batches; ++i) {
      order.push_back({Compute::backward_input, stage, i});
      // In the drain there are no forwards left: gradients of weights fill the time.
      const bool drains = next == options.micro_batches && i + 1 < options.micro_batches;
      if (i >= stage || drains) {
        order.push_back({Compute::backward_weight, stage, weights++});
      }
      forward();
    }
    while (weights < options.micro_batches) {
      order.push_back({Compute::backward_weight, stage, weights++});
    }
  }
  return schedule;
}

}  // namespace gradwire::pipeline
