#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"

namespace gradwire {

/// Returns the path of a file of the peers' programs, in ../share/gradwire/bench relative to the
/// folder of the running executable. Throws Exception(system) if it does not exist.
std::string bench_file(const std::string& name);

/// Compiles mpi_bench.c with mpicc unless it is cached, and returns the program's path. The cache
/// is $XDG_CACHE_HOME/gradwire or ~/.cache/gradwire, which several hosts often share. Fails with
/// unsupported if mpicc is missing or mpirun is not Open MPI's, or with system.
Result<std::string> build_mpi_program(const std::string& mpirun, const Environment& environment);

}  // namespace gradwire
