#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"
#include "gradwire/plan/check/run_phases.h"

namespace gradwire {

/// The steps of a trace (docs/trace.md) as one run: of each phase the median over ranks of their
/// medians over steps. Errors: invalid_argument, for an event that lacks something.
Result<std::vector<MeasuredRun>> phases_of_trace(const nlohmann::json& trace);

}  // namespace gradwire
