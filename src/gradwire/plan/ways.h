#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/plan/place/degrees.h"

namespace gradwire::plan {

/// One way to divide a model and its batch among all devices.
struct Way {
  std::string name;  ///< "data parallelism", "ZeRO stage 3", "pipeline of 4 stages".
  PlanInput input;
  StepTime time;
  MemoryUse memory;
  bool fits = false;             ///< Into the memory of a device.
  double step = 0;               ///< Seconds; of a pipeline, with unequal stages.
  std::vector<std::size_t> cut;  ///< Of a pipeline: layers of each stage.
};

/// Returns data parallelism, ZeRO and pipeline on the devices of `input`, with its global batch and
/// without tensor parallelism; those that fit first, the fastest first. ZeRO has the fastest stage
/// that fits, else stage 3. The pipeline has the fastest number of stages, micro-batches (1, 2 or 4
/// per stage) and schedule (1f1b, zero_bubble); it is missing if none fits. Empty for one device,
/// and for strategies with parameter servers or local steps.
std::vector<Way> compare_ways(const PlanInput& input);

/// "pipeline of 4 stages (zero_bubble, 16 micro-batches): 1.9 s a step, 9.3 GB; 0.2 s pipeline's
/// bubble", or "data parallelism does not fit: 31 GB of 16 GB".
std::string sentence_of(const Way& way);

}  // namespace gradwire::plan
