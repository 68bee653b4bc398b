#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::bootstrap {

/// Returns the value of an environment variable; nullopt if it is not set. A parameter, so that
/// tests need not change their environment.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

/// This process's environment.
Environment process_environment();

/// This process's place in its job, and how it reaches the other ranks.
struct Job {
  Rank rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";  ///< Name or address of rank 0's host.
  std::uint16_t master_port = 0;  ///< Port on which rank 0 listens; 0 only if world_size is 1.
  /// Port on which every rank listens (GRADWIRE_PORT), shared by the ranks of one host; 0: free
  /// ports.
  std::uint16_t port = 0;
  /// Ranks of one machine communicate through shared memory, unless GRADWIRE_SHARED_MEMORY is 0.
  bool shared_memory = true;
  /// Traffic between ranks over the network is encrypted if GRADWIRE_ENCRYPTION is "on"; must be
  /// the same on all ranks.
  bool encryption = false;
  /// Local addresses to listen on, each a rail, in place of those of `interface`: numeric, without
  /// a port. No variable sets them.
  std::vector<std::string> addresses;
  /// Name of the machine: ranks with the same name count as ranks of one host. Empty: what the
  /// kernel says (machine_identity()). No variable sets it.
  std::string machine;
  /// Network interfaces to use together: a comma-separated list of names or prefixes. Empty: the
  /// interface on the route to the master.
  std::string interface;
  /// The engine of its communicators (GRADWIRE_ENGINE): "own", or "mpi", which knows the ranks'
  /// addresses by itself: then master and secret are not needed.
  std::string engine = "own";
  /// The secret that every connection must prove it knows. Never empty unless world_size is 1 or
  /// `launcher_store` is set (the store then carries a secret).
  std::string secret;
  /// Distinguishes jobs that share a secret (GRADWIRE_JOB_ID, or the launcher's job id): the same
  /// on all ranks. May be empty.
  std::string job_id;
  /// The launcher (torchrun) itself serves a c10d store on master_port.
  bool launcher_store = false;
  std::string launcher = "none";  ///< "gradwire", "torchrun", "mpirun", "slurm" or "none".

  /// Reads the environment of `gradwire run`, torchrun, mpirun (OMPI_*, PMI_*) or Slurm (SLURM_*).
  /// With none of them, returns a job of one rank. Throws Exception(invalid_argument), which names
  /// the variable that is missing or wrong and the value to set.
  static Job from_environment(const Environment& environment = process_environment());
};

}  // namespace gradwire::bootstrap
