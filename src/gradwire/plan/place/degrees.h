#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/pipeline/simulation.h"
#include "gradwire/plan/place/pipeline_placement.h"
#include "gradwire/plan/predict/step_time.h"

namespace gradwire::plan {

/// A division of a model and its batch among devices, which fits into their memory.
struct PlacedStrategy {
  PlanInput input;  ///< Has strategy.tensor, pipeline, micro_batches and batch set.
  StepTime time;    ///< Includes the times of its stages.
  MemoryUse memory;
  /// Layers of with_blocks() of each stage, for a micro-batch; one stage has all.
  PipelinePlacement stages;
  /// Time of the slowest stage divided by the mean: stages consist of whole layers.
  double imbalance = 1;
};

/// A pipeline as it runs: its schedule with the times of its stages.
struct RunPipeline {
  pipeline::PipelineSchedule schedule;
  pipeline::PipelineCosts costs;
};

/// Returns the pipeline of a strategy that place_stages() has found; it must have several stages.
RunPipeline run_pipeline(const PlacedStrategy& placed);

/// The seconds of one pass through it, between others.
double seconds_of(const RunPipeline& run);

/// Stages up to which the schedule is run with the times of each stage. For more, stages take
/// equally long, and the slowest lengthens all.
inline constexpr int kSimulatedStages = 16;

/// Returns the strategy of `input` with these degrees, on the same devices and with the same global
/// batch. `tensor`: devices that share each layer; `pipeline`: stages. Returns nullopt if that is
/// impossible: degrees that do not divide the devices, heads or batch, or more stages than blocks.
std::optional<PlacedStrategy> place_stages(const PlanInput& input, int tensor, int pipeline,
                                           int micro_batches);

/// The same; nullopt also for more memory than a device has.
std::optional<PlacedStrategy> place(const PlanInput& input, int tensor, int pipeline,
                                    int micro_batches);

/// Returns all possible strategies, the fastest first, with the fastest of `schedules` for each
/// pipeline; "auto" is tried for the fastest few. Tensor parallelism stays inside a node, where
/// links are fast. Visits divisors of the devices and of the batch only; place_degrees_test
/// compares that with all numbers.
std::vector<PlacedStrategy> search_degrees(const PlanInput& input,
                                           const std::vector<std::string>& schedules = {
                                               "1f1b", "zero_bubble", "auto"});

}  // namespace gradwire::plan
