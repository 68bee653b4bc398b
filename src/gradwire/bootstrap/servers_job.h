#pragma once

#include <optional>

#include "gradwire/bootstrap/job.h"

namespace gradwire::bootstrap {

/// Variables that `gradwire run --servers` sets.
inline constexpr const char* kRoleVariable = "GRADWIRE_ROLE";        ///< "worker" or "server".
inline constexpr const char* kWorkersVariable = "GRADWIRE_WORKERS";  ///< Number of workers.
inline constexpr const char* kServersVariable = "GRADWIRE_SERVERS";  ///< Number of servers.
/// ADDRESS:PORT at which the first worker listens for all workers and servers.
inline constexpr const char* kServersMasterVariable = "GRADWIRE_SERVERS_MASTER";

/// A process's place in a job that has ranks of their own for parameter servers. RANK and
/// WORLD_SIZE (Job) count the ranks of its role.
struct ServersJob {
  int workers = 1;
  int servers = 1;
  bool serves = false;
  Job all;  ///< Workers first, then servers.
};

/// Returns nullopt if the launcher was given no servers. Throws Exception(invalid_argument), which
/// names the variable, as Job::from_environment().
std::optional<ServersJob> servers_job(const Job& own,
                                      const Environment& environment = process_environment());

}  // namespace gradwire::bootstrap
