#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "gradwire/base/types.h"

namespace gradwire {

/// The processes that descend from `root`, without those that have already ended, and without the
/// subtrees of `spared`. Includes what daemonised, as long as `root` is a subreaper (prctl(2)).
std::vector<pid_t> descendants_of(pid_t root, const std::set<pid_t>& spared);

/// The variable by which the processes of a run are known even when nothing else connects them to
/// it: children inherit it. Its value is "RANK.RUN".
inline constexpr const char* kProcessMark = "GRADWIRE_PROCESS";

/// The same for remote shells, which outlive the launcher to tell the other host that it is dead.
/// Its value is RUN.
inline constexpr const char* kShellMark = "GRADWIRE_SHELL";

/// The processes of this user whose environment, as it was when they started, has a mark of `run`.
std::vector<pid_t> processes_of_run(std::string_view run);

/// Sends SIGKILL to all processes of a run until there are none.
void kill_run(std::string_view run);

/// Waits until a run's remote shells have ended by themselves, at most `patience`, and sends
/// SIGKILL to those that have not.
void end_shells(std::string_view run, Duration patience);

}  // namespace gradwire
