#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/launch/launch.h"

namespace gradwire::cli {

/// The implementations of mpirun whose options gradwire knows.
enum class MpirunKind : std::uint8_t {
  open_mpi,
  hydra,  ///< MPICH's, Intel MPI's and MVAPICH's.
};

/// Asks `mpirun --version`. Fails with unsupported if it cannot be run, or is of neither kind.
Result<MpirunKind> kind_of_mpirun(const std::string& mpirun);

/// Returns mpirun's options for the number of ranks, hosts, remote shell and interface of a job.
/// Throws Exception(unsupported), which names it, for what that mpirun cannot do.
std::vector<std::string> mpirun_places(MpirunKind kind, const LaunchOptions& options);

/// Returns the options for launch() to run a job's ranks through MPI's own mpirun, which is then
/// the only process of the launcher. Each rank's program gets RANK and the like, as from launch(),
/// and says if it fails. Throws Exception: unsupported, invalid_argument.
LaunchOptions through_mpirun(const LaunchOptions& options);

}  // namespace gradwire::cli
