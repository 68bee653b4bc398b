#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/plan.h"

namespace gradwire {

/// Origin of one number of a plan.
struct Explained {
  std::string what;    ///< "T_c, bandwidth"
  std::string value;   ///< "106 ms"
  std::string how;     ///< The formula, with its numbers.
  std::string source;  ///< "measured: --step-ms", "assumed: ...", or a publication.
};

/// Returns all inputs and results of the plan.
std::vector<Explained> explain(const Plan& plan);

/// Formats one paragraph each.
std::string to_text(const std::vector<Explained>& all);

}  // namespace gradwire
