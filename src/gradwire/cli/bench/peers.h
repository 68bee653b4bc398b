#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"

/// Gradwire and what it is compared with, each as a command that measures some cases and ends its
/// standard output with {"rows": [...]}. All take the same options from the command line.
namespace gradwire {

/// A program and its arguments.
using Words = std::vector<std::string>;

using Cases = std::vector<BenchCase>;
using Rows = std::vector<BenchRow>;  ///< In the order of the cases.

/// Runs one of the commands below. Errors: system, with what it wrote, if it fails; timeout.
Result<Rows> run_peer(const Words& command, const Cases& cases,
                      Duration limit = std::chrono::hours(1));

/// The options as they were given, for `gradwire run` and `gradwire bench`.
void add_launch(Words& words, const LaunchArguments& launch);

/// For GLOO_SOCKET_IFNAME: Gloo takes whole names only. Without one, which is empty here, it takes
/// the address of the host's name, which need not be the one that others reach.
std::string gloo_interface(const LaunchArguments& launch);

/// `gradwire bench` itself. `program`: its path, the same on every host.
Words gradwire_command(const BenchOptions& options, const Cases& cases, const std::string& program);

/// Gloo, as PyTorch has it; its ranks are started by `gradwire run`, which is `program`.
Words gloo_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                   const std::string& script);

/// Open MPI with one algorithm, one of mpi_algorithms(); `benchmark`: the compiled mpi_bench.c. Its
/// mpirun is started by `gradwire run`, which leaves no rank behind when it is killed.
Words mpi_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                  const std::string& benchmark, const std::string& algorithm);

/// The algorithms that Open MPI's "tuned" component has for a collective, after "default", which is
/// its own choice. Not all work with every number of ranks.
Words mpi_algorithms(Collective collective);

}  // namespace gradwire
