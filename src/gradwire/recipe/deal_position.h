#pragma once

#include <cstdint>
#include <string>

#include "gradwire/servers/sample_dealer.h"
#include "gradwire/train/checkpoint/position.h"

namespace gradwire::recipe {

/// Returns the position of a run, as position_text(), with the progress of its servers in `samples`
/// samples an epoch.
std::string position_text(const RunPosition& position, std::int64_t samples,
                          const servers::DealProgress& progress);

/// Returns which samples of `epochs` epochs of `samples` samples were applied before the run
/// resumes at `now`: those that the servers of the run that saved `position` had applied, if it had
/// the same order of samples, and otherwise all before `now`. Throws Exception(invalid_argument)
/// if `position` is damaged.
servers::DealProgress resumed_progress(const std::string& position, const RunPosition& now,
                                       std::int64_t samples, std::int64_t epochs);

}  // namespace gradwire::recipe
