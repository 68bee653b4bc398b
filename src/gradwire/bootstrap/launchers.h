#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradwire/bootstrap/environment_variables.h"
#include "gradwire/bootstrap/job.h"

namespace gradwire::bootstrap {

/// A launcher's description of this process, without MASTER_ADDR, MASTER_PORT and GRADWIRE_*, which
/// mean the same under every launcher.
struct LauncherInfo {
  std::string launcher;  ///< Value of Job::launcher.
  Rank rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  bool launcher_store = false;
  /// Rank 0's host as far as the launcher knows it; empty: the user must set MASTER_ADDR.
  std::string master_address;
  /// Job id that distinguishes jobs on one host, the same on all ranks; the port is derived from
  /// it. Empty: the user must set MASTER_PORT.
  std::string job_id;
  /// How to set a variable on all ranks with this launcher: "mpirun -x {}=..." with {} for the
  /// name.
  std::string how_to_set;
};

/// Returns the launcher that started this process, the innermost one if there are several; nullopt
/// without a launcher. Throws Exception(invalid_argument), which names the variable that is wrong
/// or missing.
std::optional<LauncherInfo> find_launcher(const EnvironmentVariables& variables);

/// Returns true if the address is a loopback address: "localhost", "127.0.0.1", "::1".
bool is_loopback(std::string_view address);

/// Returns a port for rank 0 to listen on, which all ranks derive from the job id: in 20000 ..
/// 29999, below Linux's ephemeral ports.
std::uint16_t port_from_job_id(std::string_view job_id);

/// Returns the first host of a Slurm host list: "n01" for "n[01-03,7],m2". Throws
/// Exception(invalid_argument), which quotes the text, if it is malformed.
std::string first_slurm_host(std::string_view hosts);

/// Returns the number of tasks on node `node` (from 0) in a SLURM_TASKS_PER_NODE such as "2(x3),1".
/// Returns nullopt if the text is malformed or has fewer nodes.
std::optional<int> slurm_tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace gradwire::bootstrap
