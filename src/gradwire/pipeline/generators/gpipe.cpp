#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule gpipe(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options);
  for (Stage stage = 0; stage < options.ranks; ++stage) {
    auto& order = schedule.order[static_cast<std::size_t>(stage)];
    for (const Compute compute : {Compute::forward, Compute::backward}) {
      for (MicroBatch i = 0; i < options.micro_batches; ++i) order.push_back({compute, stage, i});
    }
  }
  return schedule;
}

}  // namespace gradwire::pipeline
