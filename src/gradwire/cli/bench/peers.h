#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/launch/captured.h"

/// Gradwire and its peers, each as a command that measures cases and ends its standard output with
/// {"rows": [...]}. All are given the same measurement options.
namespace gradwire::cli {

/// A program and its arguments.
using Words = std::vector<std::string>;

using Cases = std::vector<BenchCase>;
using Rows = std::vector<BenchRow>;  ///< In the order of the cases.

/// Runs one of the commands below. Fails with system and the command's output, or with timeout.
Result<Rows> run_peer(const Words& command, const Cases& cases,
                      Duration limit = std::chrono::hours(1));

/// Appends the given launch options, for `gradwire run` and `gradwire bench`.
void add_launch(Words& words, const LaunchArguments& launch);

/// A peer that runs over a backend of torch.distributed.
struct TorchPeer {
  std::string_view system;   ///< Its name in --compare and in rows.
  std::string_view backend;  ///< "gloo" or "gradwire".
};

/// Returns "" or why `python` cannot run torch.distributed over a backend: gloo, nccl or gradwire.
/// `gpus`: how many it must have.
std::string why_missing(const std::string& python, std::string_view backend, int gpus);

/// Returns those of `known` that --compare names and `python` can run. The others are skipped, with
/// a line on stderr from `command`. Throws UsageError for an unknown name.
std::vector<TorchPeer> installed_peers(std::string_view command,
                                       const std::vector<std::string>& names,
                                       std::span<const TorchPeer> known, const std::string& python);

/// Returns the standard output of a command. Throws Exception, with the name of the system and what
/// it printed, if it fails.
std::string output_of(const std::string& system, const Words& command);

/// Command that starts ranks of a Python program with `gradwire run`. `program`: gradwire's path.
Words python_command(const LaunchArguments& launch, const std::string& python,
                     const std::string& program);

/// Command of `gradwire bench`. `program`: its path, the same on every host.
Words gradwire_command(const BenchOptions& options, const Cases& cases, const std::string& program);

/// Command for a backend of PyTorch, gloo or nccl; `program` is gradwire, whose `run` starts the
/// ranks.
Words backend_command(const BenchOptions& options, const Cases& cases, std::string_view backend,
                      const std::string& program, const std::string& script);

/// Command for Open MPI with one of mpi_algorithms(); `benchmark`: the compiled mpi_bench.c. mpirun
/// runs under `gradwire run`, which leaves no rank behind when it is killed.
Words mpi_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                  const std::string& benchmark, const std::string& algorithm);

/// Returns "default" (Open MPI's own choice) and the algorithms of its "tuned" component for a
/// collective. Not all work with every number of ranks.
Words mpi_algorithms(schedule::Collective collective);

/// Returns the path of a file of the peers' programs, in ../share/gradwire/bench relative to the
/// folder of the running executable. Throws Exception(system) if it does not exist.
std::string bench_file(const std::string& name);

/// Compiles mpi_bench.c with mpicc unless it is cached, and returns the program's path. The cache
/// is $XDG_CACHE_HOME/gradwire or ~/.cache/gradwire, which several hosts often share. Fails with
/// unsupported if mpicc is missing or mpirun is not Open MPI's, or with system.
Result<std::string> build_mpi_program(const std::string& mpirun,
                                      const bootstrap::Environment& environment);

/// Open MPI with its fastest algorithms: the first measure() tries all of them; later calls use the
/// fastest for each case.
class OpenMpi {
 public:
  /// `options` must outlive this object; `benchmark`: path of the compiled mpi_bench.c.
  OpenMpi(const BenchOptions& options, std::string benchmark)
      : options_(options), benchmark_(std::move(benchmark)) {}

  /// Measures the cases, which must be the same in every call. Throws Exception(system, timeout).
  Rows measure(const Cases& cases);

 private:
  Words command(const Cases& cases, const std::string& algorithm) const;
  void find_best(const Cases& cases);
  void try_out(const Cases& cases, bool quick, const std::string& algorithm,
               std::vector<double>& fastest);

  const BenchOptions& options_;
  std::string benchmark_;
  std::vector<std::string> best_;  ///< Fastest algorithm of each case.
};

}  // namespace gradwire::cli
