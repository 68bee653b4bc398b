#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "gradwire/base/error.h"
#include "gradwire/base/unique_fd.h"
#include "gradwire/net/deadline.h"

namespace gradwire::cli {

/// How to start a child process.
struct SpawnRequest {
  std::vector<std::string> arguments;    ///< The program, searched in PATH, and its arguments.
  std::vector<std::string> environment;  ///< The complete environment: "NAME=value".
  bool pipe_stdin = false;               ///< Otherwise stdin is /dev/null.
  bool pipe_output = true;               ///< Otherwise it inherits stdout and stderr.
  bool die_with_parent = true;           ///< SIGKILL when the thread that spawned it ends.
  /// Start in a new session without a controlling terminal, so that ssh fails with an error instead
  /// of asking a question. In a background process group of this session the terminal would stop
  /// ssh silently.
  bool own_session = false;
};

/// A child process, leader of its own process group. The parent's ends of its pipes are
/// non-blocking.
struct Process {
  pid_t pid = -1;
  UniqueFd in, out, err;
};

/// Starts a process with default signal dispositions and no signal blocked. Fails with system and
/// the reason (no such program, not executable, too many processes).
Result<Process> spawn(const SpawnRequest& request);

/// Returns the absolute path of the running program. Throws Exception(system).
std::string own_executable();

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
void end_shells(std::string_view run, net::Deadline deadline);

}  // namespace gradwire::cli
