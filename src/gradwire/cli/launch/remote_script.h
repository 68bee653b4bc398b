#pragma once

#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/cli/launch/variables.h"

namespace gradwire {

/// What a shell on another host is to do.
struct RemoteRank {
  Rank rank = 0;
  std::string run;                   ///< The run's id: hexadecimal digits.
  std::string folder;                ///< Where to work.
  VariableList variables;            ///< To set for the program, secrets too.
  std::vector<std::string> program;  ///< And its arguments.
  int local_world_size = 1;
  int grace_seconds = 5;  ///< For processes that the rank leaves behind.
};

/// A script for any POSIX shell that starts the rank and looks after it. It is sent to the standard
/// input of the command `sh`, so that nothing of it, secrets above all, shows in a list of
/// processes, and so that the command is one plain word: ssh joins its arguments with blanks and
/// has a shell take them apart again, `ip netns exec` and `docker exec` pass them on as they are,
/// and only what needs no quoting at all means the same to both.
///
/// The script prints ready_line() with the rank's process id on stdout when the rank runs; from
/// then on it reads its standard input for control lines (and not before: a shell may read ahead
/// while it reads the script). A line is a signal's name and that process id, "TERM 4711"; the
/// signal goes to the process's group. KILL goes to everything the rank started. When the input
/// ends, the launcher is dead, and the same happens. The script exits as the program does, 128 +
/// signal if by a signal.
std::string remote_script(const RemoteRank& rank);

/// What the line that says that a rank runs begins with; a blank and the process id follow.
std::string ready_line(const std::string& run);

/// What to do about a remote shell that ends well although no script ran.
inline constexpr const char* kPassInputOn =
    "the remote shell must run the command that it is given and pass its standard input on (docker "
    "exec -i, not ssh -n)";

/// A control line for the script.
std::string control_line(int signal, const std::string& process);

}  // namespace gradwire
