#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule zero_bubble_v(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options, 2);
  for (Stage stage = options.ranks; stage < schedule.stages(); ++stage) {
    schedule.rank_of[static_cast<std::size_t>(stage)] = schedule.stages() - 1 - stage;
  }
  const int kept = options.kept > 0 ? options.kept : options.ranks;
  return order_greedily(std::move(schedule), options.costs, 2 * kept);
}

}  // namespace gradwire::pipeline
