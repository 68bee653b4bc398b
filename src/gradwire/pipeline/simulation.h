#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire::pipeline {

/// Compute times of one micro-batch in one stage, in seconds. A backward takes the sum of the other
/// two.
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  double of(Compute compute) const;
};

struct PipelineCosts {
  std::vector<StageCosts> stages;  ///< By stage; empty: the defaults.
  /// Seconds for which an activation, or its gradient, occupies the ports of its sender and its
  /// receiver. Each direction carries one transfer at a time.
  double transfer = 0;
  /// The same by stage, between it and the next one; empty: `transfer` between all.
  std::vector<double> transfers;
  double latency = 0;  ///< Seconds from the end of a transfer to its arrival.
  /// A rank has one port for all of its connections. False: one for each.
  bool shares_ports = true;

  StageCosts of(Stage stage) const {
    return stages.empty() ? StageCosts{} : stages[static_cast<std::size_t>(stage)];
  }
  /// Seconds of a transfer from a stage to another, in either direction.
  double transfer_between(Stage a, Stage b) const {
    return transfers.empty() ? transfer : transfers[static_cast<std::size_t>(std::min(a, b))];
  }
};

/// Compute times of the stages if those of a rank together take `rank`, and each an equal part of
/// it. Transfers take no time.
PipelineCosts divided_costs(const StageCosts& rank, int ranks, int stages);

/// A computation and its time, in seconds since the first step began.
struct TimedTask {
  Rank rank = 0;
  int step = 0;
  Task task;
  double begin = 0;
  double end = 0;
};

struct Timeline {
  std::vector<TimedTask> tasks;  ///< In the order of their begin.
  double step_seconds = 0;       ///< Without a barrier: of a step between others.
  double bubble = 0;             ///< Share of the ranks' time in which they compute nothing.
};

/// Runs `steps` steps in virtual time. Without a barrier, `step_seconds` is the mean of the second
/// half of the steps. Requires a schedule without faults, and costs for all of its stages.
Timeline simulate(const PipelineSchedule& schedule, const PipelineCosts& costs, int steps = 1);

}  // namespace gradwire::pipeline
