#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/plan.h"

namespace gradwire {

/// Where one number of a plan comes from.
struct Explained {
  std::string what;    ///< "T_c, bandwidth"
  std::string value;   ///< "106 ms"
  std::string how;     ///< The formula, with its numbers.
  std::string source;  ///< "measured: --comm-ms", "assumed: ...", or who published it.
};

/// All inputs and results of the plan.
std::vector<Explained> explain(const Plan& plan);

/// As text: a paragraph each.
std::string to_text(const std::vector<Explained>& all);

}  // namespace gradwire
