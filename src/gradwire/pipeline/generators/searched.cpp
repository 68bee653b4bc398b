#include "gradwire/pipeline/generators/generators.h"
#include "gradwire/pipeline/search.h"

namespace gradwire::pipeline {

PipelineSchedule searched(const PipelineOptions& options) {
  const int kept = options.kept > 0 ? options.kept : 2 * options.ranks;
  return value_or_throw(
      best_schedule({.ranks = options.ranks,
                     .micro_batches = options.micro_batches,
                     .costs = options.costs,
                     .kept = std::vector(static_cast<std::size_t>(options.ranks), kept)}));
}

}  // namespace gradwire::pipeline
