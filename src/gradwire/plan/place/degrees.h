#pragma once

#include <optional>
#include <vector>

#include "gradwire/plan/place/pipeline_placement.h"
#include "gradwire/plan/step_time.h"

namespace gradwire {

/// A way to divide a model and its batch among devices, that fits into their memory.
struct PlacedStrategy {
  PlanInput input;  ///< With strategy.tensor, pipeline, micro_batches and batch set.
  StepTime time;    ///< As step_time() has it, for stages that are all as long.
  MemoryUse memory;
  PipelinePlacement stages;  ///< The layers of each stage, for a micro-batch; one stage: all.
  /// How much longer the slowest stage takes than the mean one: layers cannot be cut anywhere.
  double imbalance = 1;
  double step = 0;  ///< Seconds, imbalance included.
  double samples_per_second = 0;
};

/// The strategy of `input` with so many devices sharing each layer, stages and micro-batches, on
/// the same devices and with the same global batch. Nothing if that cannot be: degrees that do not
/// divide the devices, heads or batch, more stages than layers, or more memory than a device has.
std::optional<PlacedStrategy> place(const PlanInput& input, int tensor, int pipeline,
                                    int micro_batches);

/// All that can be, the fastest first. Tensor parallelism stays inside a node, where links are
/// fast. Visits divisors of the devices and of the batch only; place_degrees_test holds that
/// against all numbers.
std::vector<PlacedStrategy> search_degrees(const PlanInput& input);

}  // namespace gradwire
