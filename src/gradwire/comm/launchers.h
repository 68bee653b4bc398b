#pragma once

#include <optional>
#include <string>

#include "gradwire/comm/environment_variables.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// What a launcher says about this process, before MASTER_ADDR, MASTER_PORT and GRADWIRE_* are
/// looked at, which mean the same under every launcher.
struct Launched {
  std::string launcher;  ///< As Job::launcher.
  Rank rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  bool launcher_store = false;
  /// What the launcher knows of rank 0's host; empty: the user must set MASTER_ADDR.
  std::string master_address;
  /// Tells jobs on one host apart, the same on all ranks, so that a port can be derived from it;
  /// empty: the user must set MASTER_PORT.
  std::string job_id;
  /// How to set a variable on all ranks with this launcher: "mpirun -x {}=..." with {} for the
  /// name.
  std::string how_to_set;
};

/// The launcher that started this process, the innermost one if several did; nothing if none did.
/// Throws Exception(invalid_argument) that names the variable which is wrong or missing.
std::optional<Launched> find_launcher(const EnvironmentVariables& variables);

/// Whether an address is one of this host's loopback interface: "localhost", "127.0.0.1", "::1".
bool is_loopback(std::string_view address);

/// A port for rank 0 to listen on that all ranks derive from their job's id: in 20000 .. 29999,
/// below the ports that Linux gives to outgoing connections.
std::uint16_t port_from_job_id(std::string_view job_id);

}  // namespace gradwire
