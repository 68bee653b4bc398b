#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"

/// Gradwire and what it is compared with, each as a command that measures some cases and ends its
/// standard output with {"rows": [...]}. All take the same options from the command line.
namespace gradwire {

/// A program and its arguments.
using Words = std::vector<std::string>;

/// `gradwire bench` itself. `program`: its path, the same on every host.
Words gradwire_command(const BenchOptions& options, std::span<const BenchCase> cases,
                       const std::string& program);

/// Gloo, as PyTorch has it; its ranks are started by `gradwire run`, which is `program`.
Words gloo_command(const BenchOptions& options, std::span<const BenchCase> cases,
                   const std::string& program, const std::string& script);

/// Open MPI with one algorithm, one of mpi_algorithms(); `benchmark`: the compiled mpi_bench.c. Its
/// mpirun is started by `gradwire run`, which leaves no rank behind when it is killed.
Words mpi_command(const BenchOptions& options, std::span<const BenchCase> cases,
                  const std::string& program, const std::string& benchmark,
                  const std::string& algorithm);

/// The algorithms that Open MPI's "tuned" component has for a collective, after "default", which is
/// its own choice. Not all work with every number of ranks.
Words mpi_algorithms(Collective collective);

}  // namespace gradwire
