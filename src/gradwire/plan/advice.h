#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// Something to change, and what would come of it.
struct Advice {
  std::string change;  ///< "second NIC"
  std::string text;    ///< "second NIC: 89.8 -> 94.5 %"
  std::string note;    ///< What else it changes; may be empty.
  double eta = 0;      ///< Predicted, with the change.
  double samples_per_second = 0;
  bool fits = true;
  PlanInput input;  ///< With the change.
};

/// Changes that make a step more efficient by at least a tenth of a percent, or make the model fit,
/// each found by planning anew with it, one at a time. Those that fit first, then by eta.
std::vector<Advice> advise(const PlanInput& input);

}  // namespace gradwire
