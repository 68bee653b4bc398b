#pragma once

#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/pipeline/simulation.h"

namespace gradwire::pipeline {

/// The problem that a schedule is searched for: ranks with one stage each.
struct ScheduleSearch {
  int ranks = 4;
  int micro_batches = 8;
  PipelineCosts costs;
  /// By rank: micro-batches whose activations it may keep, 1 or more. Empty: unlimited.
  std::vector<int> kept;
  bool barrier = false;  ///< A step begins when all ranks have ended the last one.
  /// Steps that are simulated, as in simulate(); 1: the time of a step alone counts.
  int steps = 4;
  int trials = 400;  ///< Changes of the order that are tried, fewer for long schedules.
};

/// Returns the fastest schedule found in simulate(); of equally fast ones, that which keeps fewest
/// micro-batches. Candidates are all generators with one stage per rank, over the numbers of
/// micro-batches to keep, also with fewer on later ranks. The best one's tasks are then moved for
/// as long as that is faster. So it is never slower than the best of these generators within the
/// limits. Deterministic in its inputs. Fails with invalid_argument for sizes and limits below 1,
/// and costs or limits of another number of ranks.
Result<PipelineSchedule> best_schedule(const ScheduleSearch& search);

}  // namespace gradwire::pipeline
