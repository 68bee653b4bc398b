#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "gradwire/base/error.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// How a child process is to be started.
struct SpawnRequest {
  std::vector<std::string> arguments;    ///< The program, looked for in PATH, and its arguments.
  std::vector<std::string> environment;  ///< All of it: "NAME=value".
  bool pipe_stdin = false;               ///< Else it reads /dev/null.
  bool pipe_output = true;               ///< Else it has our stdout and stderr.
  bool die_with_parent = true;           ///< SIGKILL when the thread that started it ends.
  /// A session without a terminal: ssh with a question fails there, and says so. In a background
  /// group of ours the terminal would stop it, and nobody would hear of it.
  bool own_session = false;
};

/// A child process, leader of its own process group. Our ends of its pipes do not block.
struct Process {
  pid_t pid = -1;
  UniqueFd in, out, err;
};

/// Starts a process with the usual signal dispositions and no signal blocked. Error: system, with
/// the reason (no such program, not executable, too many processes).
Result<Process> spawn(const SpawnRequest& request);

/// The PATH-independent path of the running program.
std::string own_executable();

}  // namespace gradwire
