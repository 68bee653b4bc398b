#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/emulation/pass_times.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gradwire::cli {

/// Declares --slow, a comma list of RANK:FACTOR or RANK:FACTOR:SHARE, for slow_workers(). `help`
/// ends with a sentence on these.
CLI::Option& declare_slow(CLI::App& app, std::vector<std::string>& given, const std::string& help);

/// Returns the workers of --slow. Throws Exception(invalid_argument).
std::map<Rank, emulation::SlowWorker> slow_workers(const std::vector<std::string>& given);

}  // namespace gradwire::cli
