#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/plan/place/degrees.h"

namespace gradwire::plan {

/// An alternative that is slower than the chosen way, or does not fit.
struct OtherWay {
  std::string what;  ///< "stage 2", "1f1b", "8 micro-batches", "2 stages".
  double step = 0;   ///< Seconds; 0: it does not fit.
};

/// One way to divide a model and its batch among all devices.
struct Way {
  std::string name;  ///< "data parallelism", "ZeRO stage 3", "pipeline of 4 stages".
  PlanInput input;
  StepTime time;
  /// Bytes on a device of each stage of a pipeline, by its layers and the micro-batches that its
  /// schedule keeps there; of other ways, the bytes that all devices have.
  std::vector<double> memory_by_stage;
  bool fits = false;                     ///< It fits into the memory of a device.
  double step = 0;                       ///< Seconds.
  std::optional<PlacedStrategy> placed;  ///< Placement of a pipeline.
  std::vector<std::size_t> cut;          ///< Layers of with_blocks() of each pipeline stage.
  /// For a pipeline in float32: seconds of a step with activations and their gradients in int8,
  /// without the time to encode them; 0: it saves less than 2 %.
  double step_in_int8 = 0;
  /// The alternatives that lost. ZeRO: the other stages. Pipeline: other schedules with the same
  /// stages and micro-batches, the same schedule with other micro-batch counts, and other stage
  /// counts with their fastest schedule.
  std::vector<OtherWay> others;
};

/// Returns data parallelism, ZeRO and pipeline on the devices of `input`, with its global batch and
/// without tensor parallelism; those that fit first, the fastest first. ZeRO has the fastest stage
/// that fits, else stage 3. The pipeline has the fastest number of stages, micro-batches (1, 2 or 4
/// per stage) and schedule: 1f1b, zero_bubble, and up to kSimulatedStages stages auto, which
/// searches; it is missing if none fits. Empty for one device, and for strategies with parameter
/// servers or local steps.
std::vector<Way> compare_ways(const PlanInput& input);

/// "pipeline of 4 stages (auto, 16 micro-batches): 1.9 s a step, 9.3 GB; 0.2 s pipeline's
/// bubble", or "data parallelism does not fit: 31 GB of 16 GB".
std::string sentence_of(const Way& way);

/// Why this one and none of its others: "1f1b 24 % slower, 2 stages 2.1 times as long, too large: 8
/// micro-batches"; and what a codec of activations would save. Empty if there is nothing to say.
std::string reason_of(const Way& way);

}  // namespace gradwire::plan
