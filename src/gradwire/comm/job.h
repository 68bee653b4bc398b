#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/types.h"

namespace gradwire {

/// Looks a variable of the environment up; nothing if it is not set. A parameter, so that tests
/// need not change their own environment.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

/// This process's environment.
Environment process_environment();

/// Who this process is in its job, and how it finds the others.
struct Job {
  Rank rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";  ///< Name or address of rank 0's host.
  std::uint16_t master_port = 0;             ///< Where rank 0 listens; 0 only in a world of one.
  /// What every rank listens on (GRADWIRE_PORT), shared by those of one host; 0: free ports.
  std::uint16_t port = 0;
  /// Ranks of one machine talk through shared memory; not if GRADWIRE_SHARED_MEMORY is 0.
  bool shared_memory = true;
  /// What ranks send each other over the network is encrypted, if GRADWIRE_ENCRYPTION is "on"; the
  /// same on all of them.
  bool encryption = false;
  /// Interfaces to use, at once: names, prefixes, or a comma list of them; empty: the route to the
  /// master.
  std::string interface;
  /// What every connection must prove it knows. Never empty unless the world has one rank or
  /// `launcher_store` holds (the store then carries one).
  std::string secret;
  /// Tells jobs apart that share a secret (GRADWIRE_JOB_ID, or what the launcher calls the job):
  /// the same on all ranks. May be empty.
  std::string job_id;
  /// The launcher (torchrun) itself listens on master_port with a c10d store.
  bool launcher_store = false;
  std::string launcher = "none";  ///< "gradwire", "torchrun", "mpirun", "slurm" or "none".

  /// Reads the environment of `gradwire run`, torchrun, mpirun (OMPI_*, PMI_*) and Slurm
  /// (SLURM_*); with none of them, a world of one. Throws Exception(invalid_argument) that names
  /// the variable which is missing or wrong, and what to set.
  static Job from_environment(const Environment& environment = process_environment());
};

}  // namespace gradwire
