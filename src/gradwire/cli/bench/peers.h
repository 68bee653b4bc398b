#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"

/// Gradwire and its peers, each as a command that measures cases and ends its standard output with
/// {"rows": [...]}. All are given the same measurement options.
namespace gradwire {

/// A program and its arguments.
using Words = std::vector<std::string>;

using Cases = std::vector<BenchCase>;
using Rows = std::vector<BenchRow>;  ///< In the order of the cases.

/// Runs one of the commands below. Fails with system and the command's output, or with timeout.
Result<Rows> run_peer(const Words& command, const Cases& cases,
                      Duration limit = std::chrono::hours(1));

/// Appends the given launch options, for `gradwire run` and `gradwire bench`.
void add_launch(Words& words, const LaunchArguments& launch);

/// Returns the value of GLOO_SOCKET_IFNAME, which must be a whole interface name; empty: unset.
/// Without it Gloo uses the address of the host's name, which other hosts may not reach.
std::string gloo_interface(const LaunchArguments& launch);

/// Command of `gradwire bench`. `program`: its path, the same on every host.
Words gradwire_command(const BenchOptions& options, const Cases& cases, const std::string& program);

/// Command for PyTorch's Gloo; `program` is gradwire, whose `run` starts the ranks.
Words gloo_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                   const std::string& script);

/// Command for Open MPI with one of mpi_algorithms(); `benchmark`: the compiled mpi_bench.c. mpirun
/// runs under `gradwire run`, which leaves no rank behind when it is killed.
Words mpi_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                  const std::string& benchmark, const std::string& algorithm);

/// Returns "default" (Open MPI's own choice) and the algorithms of its "tuned" component for a
/// collective. Not all work with every number of ranks.
Words mpi_algorithms(Collective collective);

}  // namespace gradwire
