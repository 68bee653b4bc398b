#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/cli/launch/launch.h"

namespace gradwire::cli {

/// Returns `text` quoted as one word of a POSIX shell's input; `text` may contain any character.
std::string shell_quote(std::string_view text);

/// A rank to be started by a shell on another host.
struct RemoteRank {
  Rank rank = 0;
  std::string run;                   ///< Id of the run: hexadecimal digits.
  std::string folder;                ///< Working directory.
  VariableList variables;            ///< Set for the program; includes secrets.
  std::vector<std::string> program;  ///< The program and its arguments.
  int local_world_size = 1;
  int grace_seconds = 5;  ///< For processes that the rank leaves behind.
};

/// Returns a script for any POSIX shell that starts the rank and supervises it. It is sent to the
/// standard input of the command `sh`, so that no secret shows in the list of processes. The
/// command is one plain word because remote shells disagree about quoting. ssh joins its arguments
/// with blanks and lets a shell split them again; `ip netns exec` and `docker exec` pass them on
/// unchanged.
///
/// When the rank runs, the script prints ready_line() with the rank's process id on stdout. From
/// then on it reads control lines from standard input (not earlier: a shell may read ahead while it
/// reads the script). A control line is a signal's name and that process id, "TERM 4711"; the
/// signal goes to the process group. KILL goes to everything the rank started. END is a KILL that
/// waits as long as the rank saves a checkpoint, of which a report_line() with kSaving tells. NOTES
/// asks for a report_line() with the file's last kOptional, or with no ranks. End of input means
/// that the launcher is dead, and is handled as KILL. The script exits with the status of the
/// program, 128 + signal if it was killed by a signal.
std::string remote_script(const RemoteRank& rank);

/// Returns the prefix of the line that reports that the rank runs; a blank and the process id
/// follow.
std::string ready_line(const std::string& run);

/// Returns a control line that asks for the optional ranks.
std::string notes_line(const std::string& process);

/// Returns a control line that ends the rank.
std::string end_line(const std::string& process);

/// Returns the prefix of the lines that the script prints on stderr about the rank's file
/// (bootstrap/failure_report.h); a blank and a line of it follow: at the end its report, if any,
/// and its optional ranks.
std::string report_line(const std::string& run);

/// Advice about a remote shell that exits with 0 although no script ran.
inline constexpr const char* kForwardStdin =
    "the remote shell must run the given command and forward its standard input (docker exec -i, "
    "not ssh -n)";

/// Returns what mends it if the remote shell, given with its options, is ssh and `status` says that
/// ssh itself failed; else "".
std::string remedy_for_ssh(const std::vector<std::string>& rsh, const std::string& host,
                           int status);

/// Returns a control line for the script.
std::string control_line(int signal, const std::string& process);

}  // namespace gradwire::cli
