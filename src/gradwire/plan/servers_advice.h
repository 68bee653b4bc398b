#pragma once

#include <span>
#include <string>

#include "gradwire/emulation/pass_times.h"
#include "gradwire/servers/server_policy.h"

namespace gradwire::plan {

/// In mode ssp all workers go at the pace of the slowest one. If the mean compute of one is clearly
/// above the others', returns a sentence that says so, with the remedies; otherwise "". `compute`:
/// by worker, in any unit.
std::string advice_on_slow_worker(const servers::ServerPolicy& policy,
                                  std::span<const double> compute);
/// The same for workers whose passes take these times, `members` of them in a group.
std::string advice_on_slow_worker(const servers::ServerPolicy& policy,
                                  const emulation::PassTimes& times, int members = 1);

}  // namespace gradwire::plan
