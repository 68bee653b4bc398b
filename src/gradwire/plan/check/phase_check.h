#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/plan/check/run_phases.h"

namespace gradwire::plan {

/// Predicted and measured time of a phase, in seconds.
struct PhaseCheck {
  std::string_view phase;
  double predicted = 0, measured = 0;

  /// Error as a share of the step; positive if the phase makes the prediction too long.
  double share_of(double step) const { return (predicted - measured) / step; }
};

/// Returns every phase that both know; `step` is last.
std::vector<PhaseCheck> check_phases(const StepPhases& predicted, const StepPhases& measured);

/// Returns |predicted / measured - 1| of the whole step; negative if it is not in `checks`.
double step_error(const std::vector<PhaseCheck>& checks);

/// Formats a table, and a sentence with the error of the step and the phase with the largest error.
std::string format_checks(const std::vector<PhaseCheck>& checks);

}  // namespace gradwire::plan
