#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "gradwire/base/error.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire {

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

}  // namespace gradwire
