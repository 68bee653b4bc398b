#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "gradwire/net/deadline.h"

namespace gradwire {

/// Returns the live descendants of `root`, without the subtrees of `spared`. Includes daemonized
/// descendants as long as `root` is a subreaper (prctl(2)).
std::vector<pid_t> descendants_of(pid_t root, const std::set<pid_t>& spared);

/// Environment variable that marks the processes of a run; inherited by children, so that it
/// identifies them even when nothing else connects them to the run. Its value is "RANK.RUN".
inline constexpr const char* kProcessMark = "GRADWIRE_PROCESS";

/// Marks remote shells, which outlive the launcher to tell the other host that it is dead. Its
/// value is "RUN".
inline constexpr const char* kShellMark = "GRADWIRE_SHELL";

/// Returns the processes of this user whose initial environment has the mark of `run`.
std::vector<pid_t> processes_of_run(std::string_view run);

/// Sends SIGKILL to all processes of a run until none is left (bounded: 10 rounds).
void kill_run(std::string_view run);

/// Waits until the remote shells of a run have ended, at most until the deadline, and sends SIGKILL
/// to the rest.
void end_shells(std::string_view run, Deadline deadline);

}  // namespace gradwire
