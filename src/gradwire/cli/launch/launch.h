#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/variables.h"

namespace gradwire {

/// What becomes of what the ranks write.
enum class RankOutput : std::uint8_t {
  prefixed,     ///< Whole lines, with "[rank] " before each.
  unchanged,    ///< Straight to our stdout and stderr.
  first_plain,  ///< Rank 0's straight to ours, as if it ran alone; the others' prefixed.
};

/// A job to run.
struct LaunchOptions {
  std::vector<std::string> program;          ///< And its arguments.
  std::optional<int> ranks;                  ///< Nothing: one for each slot of the hosts.
  std::vector<HostEntry> hosts;              ///< None: this one, with a slot for each core.
  std::vector<std::string> rsh = {"ssh"};    ///< Started with a host's name and "sh".
  std::string master_address;                ///< Empty: the first host's.
  std::optional<std::uint16_t> master_port;  ///< Nothing: `port`, or else a free one.
  /// For GRADWIRE_PORT, the one port that ranks listen on; nothing: as it is.
  std::optional<std::uint16_t> port;
  std::string interface;   ///< For GRADWIRE_INTERFACE; empty: as it is.
  std::string secret;      ///< Empty: GRADWIRE_SECRET, or else a new one.
  VariableList variables;  ///< More, for all ranks.
  RankOutput output = RankOutput::prefixed;
  Duration grace = std::chrono::seconds(5);  ///< Between SIGTERM and SIGKILL.
  /// For the remote shells to have started their ranks. Shorter than ranks wait for each other, so
  /// that the host is named whose shell hangs.
  Duration start_timeout = std::chrono::seconds(30);
  std::string name = "gradwire run";  ///< What our own messages begin with.
};

/// Starts the ranks, passes their output and our signals on, and waits for them. When one fails,
/// the others get SIGTERM and, after the grace period, SIGKILL; so they do after SIGINT, SIGTERM,
/// SIGHUP or SIGQUIT was passed on, and at once on a second SIGINT. SIGUSR1 and SIGUSR2 are just
/// passed on. No process of the ranks is left when it returns.
///
/// A remote shell that has not started its rank within the start timeout counts as failed, with
/// status 127, and is killed.
///
/// Returns 0, or the exit status of the first rank that failed (128 + signal if by a signal), which
/// a line on stderr then names. Throws Exception if the job cannot be started, WrongCommandLine if
/// the options do not go together.
///
/// Changes the state of the process while it runs: signals, child processes (it collects all of
/// them). Call it from a process with one thread and no other children.
int launch(const LaunchOptions& options);

}  // namespace gradwire
