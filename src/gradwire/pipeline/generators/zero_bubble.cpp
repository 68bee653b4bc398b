#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule zero_bubble(const PipelineOptions& options) {
  const int kept = options.kept > 0 ? options.kept : 2 * options.ranks;
  return order_greedily(without_order(options), options.costs, kept);
}

}  // namespace gradwire::pipeline
