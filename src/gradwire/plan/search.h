#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/predict/step_time.h"

namespace gradwire::plan {

/// Limits of a search.
struct SearchSpace {
  std::vector<std::string> codecs{"none", "bf16"};  ///< Allowed codecs.
  double memory_bytes = 0;                          ///< Per device; 0: all of its memory.
};

/// A strategy that fits into memory.
struct FoundStrategy {
  PlanInput input;
  StepTime time;
  MemoryUse memory;
};

/// Returns every way in which `gradwire train` can train `input`'s global batch on its nodes: ZeRO
/// stages, codecs, passes per step, recomputed activations; with full overlap. Only those that fit,
/// the most samples per second first; ties are ordered by memory. Empty if none fits.
std::vector<FoundStrategy> search_strategies(const PlanInput& input, const SearchSpace& space = {});

/// The settings that a configuration has beside the strategy if it is a pipeline.
struct PipelineSettings {
  std::vector<std::size_t> cut;   ///< Layers of each stage; empty: balanced by parameters.
  pipeline::PipelineCosts costs;  ///< Written if `stages` is not empty.
};

/// Returns the strategy as a configuration of `gradwire train` (docs/training.md). Pipelines
/// compute in fp32, as `gradwire train` does.
std::string train_config(const PlanInput& input, const PipelineSettings& pipeline = {});

/// Returns a time in whole nanoseconds, as train_config() writes it.
double configured_milliseconds(double seconds);
inline double configured_seconds(double seconds) {
  return configured_milliseconds(seconds) / 1e3;
}

}  // namespace gradwire::plan
