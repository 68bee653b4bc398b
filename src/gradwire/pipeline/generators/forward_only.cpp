#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule forward_only(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  schedule.trains = false;
  // No gradient comes back that would hold up the first stage: the transfers do.
  schedule.sends_in_flight = 2;
  schedule.receives_ahead = 2;
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    auto& order = schedule.order[static_cast<std::size_t>(stage)];
    for (MicroBatch i = 0; i < options.micro_batches; ++i) {
      order.push_back({Compute::forward, stage, i});
    }
  }
  return schedule;
}

}  // namespace gradwire::pipeline
