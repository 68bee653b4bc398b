#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/emulation/pass_times.h"

namespace CLI {
class App;
}

namespace gradwire::cli {

/// Declares --slow, a comma list of RANK:FACTOR or RANK:FACTOR:SHARE, for slow_workers(). `app`
/// must have --servers.
void declare_slow(CLI::App& app, std::vector<std::string>& given);

/// Returns the workers of --slow. Throws Exception(invalid_argument).
std::map<Rank, emulation::SlowWorker> slow_workers(const std::vector<std::string>& given);

}  // namespace gradwire::cli
