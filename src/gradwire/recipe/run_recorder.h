#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/report/run_record.h"
#include "gradwire/report/step_log.h"
#include "gradwire/servers/server_report.h"
#include "gradwire/step/step_host.h"

namespace gradwire::recipe {

/// Seconds of a step: computing, waiting for communication, waiting for the batch.
struct StepTimes {
  double compute = 0;
  double exposed = 0;
  double data = 0;
};

/// Measures training steps on this rank. Reads no clock: times are arguments.
class StepMeter {
 public:
  /// Starts a step. `sent`: payload bytes this rank has sent in total, or < 0 if not counted.
  void begin(Time now, const step::StepStats& stats, double sent);
  /// The batch arrived: the time since begin() counts as waiting for data.
  void on_data(Time now) { data_end_ = now; }
  /// Ends the step: gradients averaged, parameters updated.
  void end(Time now, const step::StepStats& stats, double sent);
  /// Ends a step that begin() started, and for which there was no batch.
  void end_idle(Time now);
  /// Call after the last step, when nothing is in flight. Overlapped communication also sends bytes
  /// between steps and after the last one.
  void update_sent(double sent);
  /// Excludes bytes that were sent between steps, for something else.
  void exclude_sent(double bytes) { sent_at_first_ += bytes; }

  /// Times of the last step, in seconds. Requires at least one step.
  StepTimes last() const { return {compute_.back(), exposed_.back(), data_.back()}; }

  std::int64_t steps() const { return static_cast<std::int64_t>(compute_.size()); }
  Duration total() const { return total_; }
  /// Returns the estimated duration of `steps` more steps. Requires at least one step.
  Duration time_of(std::int64_t steps) const;
  double communication_share() const;
  /// Returns the compute from one of `pushes` pushes to the next, without that of the first step,
  /// which is longer. Unknown with fewer than two steps.
  servers::Pace pace(std::int64_t pushes) const;

  // Per step: medians of the times in seconds, means of the bytes.
  double compute_seconds() const;
  double exposed_seconds() const;
  double data_seconds() const;
  double gradient_bytes() const;
  double sent_bytes() const;  ///< < 0 if not counted.

 private:
  double per_step(double total) const;

  Time begin_{};
  Time data_end_{};
  step::StepStats stats_at_begin_;
  double sent_at_first_ = 0;  ///< At the start of the first step.
  std::vector<double> compute_;
  std::vector<double> exposed_;
  std::vector<double> data_;
  Duration total_{};
  Duration waited_{};
  double gradient_bytes_ = 0;
  double sent_bytes_ = 0;
};

/// Collects the data of a run for `gradwire report`, in bounded memory. Reads no clock.
class RunRecorder {
 public:
  void begin_epoch(Time now) { begin_ = now; }
  /// `whole`: true if the epoch ran from its first step; others are excluded from epoch times.
  void end_epoch(Time now, bool whole);
  void step(std::int64_t step, double loss, double learning_rate, const StepTimes& times);
  void test(const report::RunTest& test) { tests_.push_back(test); }

  /// Fills all but the run's name, hosts, configuration and memory, which the trainer does not
  /// know.
  report::RunRecord record(const TrainConfig& config, const report::TrainingSummary& summary) const;

 private:
  Time begin_{};
  report::StepLog log_;
  std::vector<report::RunTest> tests_;
  std::vector<double> epochs_;
};

/// Short name of the parallelization strategy: "DDP x4", "local SGD x2", "1 rank".
std::string strategy_of(const TrainConfig& config, int ranks);

}  // namespace gradwire::recipe
