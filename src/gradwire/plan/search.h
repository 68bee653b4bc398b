#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// Where to look for a strategy.
struct SearchSpace {
  std::vector<std::string> codecs{"none", "bf16"};  ///< Those that may be used.
  double memory_bytes = 0;                          ///< Of a device; 0: the device's.
};

/// A strategy that fits.
struct FoundStrategy {
  PlanInput input;
  StepTime time;
  MemoryUse memory;
};

/// Every way of `gradwire train` to train `input`'s global batch on its nodes: ZeRO's stages,
/// codecs, passes that a step is cut into, recomputed activations; overlapped as far as possible.
/// Those that fit, the most samples per second first; of equals the one that needs less memory.
/// Empty if none fits.
std::vector<FoundStrategy> search_strategies(const PlanInput& input, const SearchSpace& space = {});

/// The strategy as the configuration that `gradwire train` takes (docs/training.md).
std::string train_config(const PlanInput& input);

}  // namespace gradwire
