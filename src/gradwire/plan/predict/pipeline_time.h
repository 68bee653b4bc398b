#pragma once

#include <compare>
#include <map>
#include <string>

#include "gradwire/pipeline/simulation.h"

namespace gradwire::plan {

/// A pipeline whose ranks take equally long, one pass of all micro-batches after the other.
struct PipelineRun {
  std::string schedule;  ///< Name as in pipeline/catalogue.h: "1f1b", "zero_bubble:8".
  int ranks = 1;
  int micro_batches = 1;
  pipeline::StageCosts rank;  ///< Costs of one micro-batch in all stages of a rank, in seconds.
  double transfer = 0;        ///< Seconds for which an activation occupies its ports.
  double latency = 0;         ///< Seconds from then on to its arrival.
};

/// The costs of the pipeline's schedule.
struct PipelineTime {
  double bubble = 0;     ///< Seconds of a pass in which a rank would wait on an infinite network.
  double transfers = 0;  ///< Seconds of waiting that the network adds.
  double kept = 1;       ///< Micro-batches whose activations a rank keeps, over all of its stages.
};

/// Times of pipelines from their schedules, which pipeline::simulate() runs: of a pass between
/// others, as passes follow each other without a barrier. The step of many micro-batches is
/// extrapolated from two with fewer, between which it grows linearly. Remembers times. Not
/// thread-safe.
class PipelineTimes {
 public:
  /// Throws Exception(invalid_argument) for what make_pipeline() refuses.
  PipelineTime of(const PipelineRun& run);

 private:
  struct Key {
    std::string schedule;
    int ranks = 1, micro_batches = 1;
    double input = 0, weight = 0, transfer = 0, latency = 0;  ///< Over the forward's time.
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, PipelineTime> times_;  ///< In units of the forward's time.
};

}  // namespace gradwire::plan
