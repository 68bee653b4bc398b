#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/plan/check/run_phases.h"

namespace gradwire {

/// A phase as it was predicted and as it then was, in seconds.
struct PhaseCheck {
  std::string_view phase;
  double predicted = 0, measured = 0;

  /// Of the whole step's time: how much the phase makes the prediction too long (above 0) or short.
  double share_of(double step) const { return (predicted - measured) / step; }
};

/// Every phase that both know. `step` comes last.
std::vector<PhaseCheck> check_phases(const StepPhases& predicted, const StepPhases& measured);

/// |predicted / measured - 1| of the whole step; negative: it is not among them.
double step_error(const std::vector<PhaseCheck>& checks);

/// A table, and in one sentence how good the prediction was and which phase it errs in most.
std::string format_checks(const std::vector<PhaseCheck>& checks);

}  // namespace gradwire
