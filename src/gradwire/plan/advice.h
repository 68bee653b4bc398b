#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// A proposed change, and its predicted effect.
struct Advice {
  std::string change;  ///< "second NIC"
  std::string text;    ///< "second NIC: 89.8 -> 94.5 %"
  std::string note;    ///< Side effects; may be empty.
  double eta = 0;      ///< Predicted, with the change.
  double samples_per_second = 0;
  bool fits = true;
  PlanInput input;  ///< With the change.
};

/// Returns changes that raise the efficiency by at least 0.1 percentage points, or make the model
/// fit. Each is planned by itself. Those that fit come first, then by eta.
std::vector<Advice> advise(const PlanInput& input);

}  // namespace gradwire
