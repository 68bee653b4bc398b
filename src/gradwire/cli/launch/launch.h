#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/cli/launch/hosts.h"

namespace gradwire::cli {

/// Environment variables to set, in this order.
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// A complete environment.
using VariableMap = std::map<std::string, std::string, std::less<>>;

/// Returns this process's environment without kOfAnotherJob.
VariableMap own_variables();

/// Set by torchrun for its ranks to find its store, and by `gradwire run --servers` for roles;
/// hidden from ranks that this process starts.
inline constexpr const char* kOfAnotherJob[] = {
    "TORCHELASTIC_RUN_ID",       "TORCHELASTIC_USE_AGENT_STORE", bootstrap::kRoleVariable,
    bootstrap::kWorkersVariable, bootstrap::kServersVariable,    bootstrap::kServersMasterVariable};

/// Returns the entries in the form of exec(2): "NAME=value".
std::vector<std::string> entries_of(const VariableMap& variables);

/// How the launcher passes on the ranks' output.
enum class RankOutput : std::uint8_t {
  prefixed,     ///< Whole lines, each prefixed with "[rank] ".
  unchanged,    ///< Inherits the launcher's stdout and stderr.
  first_plain,  ///< Rank 0 inherits stdout and stderr; the other ranks are prefixed.
};

/// A job to run.
struct LaunchOptions {
  std::vector<std::string> program;          ///< The program and its arguments.
  std::optional<int> ranks;                  ///< nullopt: one per slot of the hosts.
  int servers = 0;                           ///< Number of ranks, the last ones, that serve.
  std::vector<HostEntry> hosts;              ///< Empty: this host, with one slot per core.
  std::vector<std::string> rsh = {"ssh"};    ///< Run with a host's name and "sh" as arguments.
  std::string master_address;                ///< Empty: the first host's.
  std::optional<std::uint16_t> master_port;  ///< nullopt: `port` if set, else a free port.
  /// Sets GRADWIRE_PORT, the one port that ranks listen on; nullopt: inherited unchanged.
  std::optional<std::uint16_t> port;
  std::string interface;   ///< Sets GRADWIRE_INTERFACE; empty: inherited.
  std::string secret;      ///< Empty: GRADWIRE_SECRET if set, else generated.
  VariableList variables;  ///< Additional variables for all ranks.
  RankOutput output = RankOutput::prefixed;
  Duration grace = std::chrono::seconds(5);  ///< From SIGTERM to SIGKILL.
  /// Deadline for remote shells to start their ranks. Shorter than the ranks' connect timeout, so
  /// that the error names the host whose shell hangs.
  Duration start_timeout = std::chrono::seconds(30);
  std::string name = "gradwire run";  ///< Prefix of the launcher's own messages.
  std::string process;         ///< Name of the only process in messages; empty: its rank and host.
  std::string engine = "own";  ///< GRADWIRE_ENGINE; "mpi": through_mpirun().
  std::vector<std::string> mpirun = {"mpirun"};  ///< MPI's launcher, with options.
};

/// Returns the program as it runs on every host: a .py file in Python, and `python`, `python3` and
/// `python3.N` as the absolute path of the first in `path` ($PATH), so that all hosts run the same
/// interpreter. Unchanged if `path` has none, or for any other program.
std::vector<std::string> with_interpreter(std::vector<std::string> program, std::string_view path);

/// Starts the ranks, passes on their output and the launcher's signals, and waits for them. When a
/// rank fails, the others get SIGTERM and, after the grace period, SIGKILL. SIGINT, SIGTERM, SIGHUP
/// and SIGQUIT are passed on and start the same grace period; a second SIGINT kills at once.
/// SIGUSR1 and SIGUSR2 are only passed on. No process of the ranks is left when launch() returns.
///
/// A remote shell that has not started its rank within the start timeout counts as failed with
/// status 127 and is killed.
///
/// Returns 0, or the exit status of the first rank that failed (128 + signal if it was killed by a
/// signal); a line on stderr then names that rank. Throws Exception if the job cannot be started,
/// UsageError if the options are inconsistent.
///
/// Changes process-wide state while it runs: signal mask and dispositions, child processes (it
/// reaps all of them). Call it from a single-threaded process without other children.
int launch(const LaunchOptions& options);

/// Returns the default of --master-addr for a rank 0 that runs on `first`. `other`: another host of
/// the job; null if all ranks are on this host, which gives 127.0.0.1. Else the address of `first`.
/// If that is loopback here, as with Debian's "127.0.1.1 NAME" in /etc/hosts: the address of the
/// first of the `interfaces` (as in GRADWIRE_INTERFACE), by default of the one on the route to
/// `other`. Throws Exception(invalid_argument) if there is none.
std::string default_master_address(const HostEntry& first, const HostEntry* other,
                                   const std::string& interfaces = "");

/// Returns the interfaces of a job, as in GRADWIRE_INTERFACE; "": not chosen.
std::string interfaces_of(const LaunchOptions& options);

/// Returns a port for rank 0 to listen on. If `address` belongs to this host, the port is free now.
/// Otherwise it is drawn from 20000..29999, below the range of ephemeral ports, so that it is
/// probably free. Throws Exception(invalid_argument) for the wildcard addresses 0.0.0.0 and ::.
std::uint16_t free_master_port(const std::string& address);

/// One rank and everything needed to start it.
struct RankPlan {
  Placement place;
  HostEntry host;
  bool remote = false;
  VariableList variables;  ///< Set by the launcher, on top of the host's own environment.
};

/// Everything about a job that is decided before its first process starts.
struct JobPlan {
  std::string run;  ///< Random; marks the processes (kProcessMark).
  std::vector<RankPlan> ranks;
};

/// Decides where ranks run and what is in their environment. Throws Exception(invalid_argument,
/// system).
JobPlan plan_job(const LaunchOptions& options);

}  // namespace gradwire::cli
