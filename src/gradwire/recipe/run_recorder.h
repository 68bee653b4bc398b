#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/recipe/step_meter.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/report/run_record.h"
#include "gradwire/report/step_log.h"

namespace gradwire {

/// Collects the data of a run for `gradwire report`, in bounded memory. Reads no clock.
class RunRecorder {
 public:
  void begin_epoch(Time now) { begin_ = now; }
  /// `whole`: true if the epoch ran from its first step; others are excluded from epoch times.
  void end_epoch(Time now, bool whole);
  void step(std::int64_t step, double loss, const StepTimes& times);

  /// Fills all but the run's name, configuration and memory, which the trainer does not know.
  RunRecord record(const TrainConfig& config, const TrainingSummary& summary) const;

 private:
  Time begin_{};
  StepLog log_;
  std::vector<double> epochs_;
};

/// Short name of the parallelization strategy: "DDP x4", "local SGD x2", "1 rank".
std::string strategy_of(const TrainConfig& config, int ranks);

}  // namespace gradwire
