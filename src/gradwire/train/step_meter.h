#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/train/gradient_reducer.h"

namespace gradwire {

/// Measures training steps on this rank. Reads no clock: times are arguments.
class StepMeter {
 public:
  /// A step begins. `sent`: payload bytes this rank has sent so far, or < 0 if nobody counts.
  void begin(Time now, const ReducerStats& stats, double sent);
  /// It ends: gradients averaged, parameters updated.
  void end(Time now, const ReducerStats& stats, double sent);

  std::int64_t steps() const { return static_cast<std::int64_t>(compute_.size()); }
  Duration total() const { return total_; }
  double communication_share() const;

  // Of a step: medians of the times in seconds, means of the bytes.
  double compute_seconds() const;
  double exposed_seconds() const;
  double gradient_bytes() const;
  double sent_bytes() const;  ///< < 0 if nobody counts.

 private:
  double per_step(double total) const;

  Time begin_{};
  ReducerStats stats_at_begin_;
  double sent_at_begin_ = 0;
  std::vector<double> compute_;
  std::vector<double> exposed_;
  Duration total_{};
  Duration waited_{};
  double gradient_bytes_ = 0;
  double sent_bytes_ = 0;
};

}  // namespace gradwire
