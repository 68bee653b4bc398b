#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"
#include "gradwire/plan/check/run_phases.h"

namespace gradwire {

/// Returns the steps of a trace (docs/trace.md) as one run: for each phase, the median over ranks
/// of the ranks' medians over steps. Error: invalid_argument, if an event is incomplete.
Result<std::vector<MeasuredRun>> phases_of_trace(const nlohmann::json& trace);

}  // namespace gradwire
