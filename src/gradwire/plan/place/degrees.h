#pragma once

#include <optional>
#include <vector>

#include "gradwire/plan/place/pipeline_placement.h"
#include "gradwire/plan/step_time.h"

namespace gradwire::plan {

/// A division of a model and its batch among devices, which fits into their memory.
struct PlacedStrategy {
  PlanInput input;  ///< With strategy.tensor, pipeline, micro_batches and batch set.
  StepTime time;    ///< From step_time(), for stages of equal duration.
  MemoryUse memory;
  /// Layers of with_blocks() of each stage, for a micro-batch; one stage has all.
  PipelinePlacement stages;
  /// Time of the slowest stage divided by the mean: stages consist of whole layers.
  double imbalance = 1;
  double step = 0;  ///< Seconds, imbalance included.
  double samples_per_second = 0;
};

/// Returns the strategy of `input` with these degrees, on the same devices and with the same global
/// batch. `tensor`: devices that share each layer; `pipeline`: stages. Returns nullopt if that is
/// impossible: degrees that do not divide the devices, heads or batch, more stages than blocks, or
/// more memory than a device has.
std::optional<PlacedStrategy> place(const PlanInput& input, int tensor, int pipeline,
                                    int micro_batches);

/// Returns all possible strategies, the fastest first. Tensor parallelism stays inside a node,
/// where links are fast. Visits divisors of the devices and of the batch only; place_degrees_test
/// compares that with all numbers.
std::vector<PlacedStrategy> search_degrees(const PlanInput& input);

}  // namespace gradwire::plan
