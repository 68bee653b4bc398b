#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// Path of a file of the peers' programs, which lie in ../share/gradwire/bench beside the running
/// executable's folder. Throws Exception(system) if it is not there.
std::string bench_file(const std::string& name);

/// Compiles mpi_bench.c with mpicc, unless that was done before, and returns the program's path. It
/// is kept in $XDG_CACHE_HOME/gradwire or ~/.cache/gradwire, which several hosts often share.
/// Errors: unsupported, if mpicc or Open MPI's mpirun is not there; system.
Result<std::string> build_mpi_program(const std::string& mpirun, const Environment& environment);

}  // namespace gradwire
