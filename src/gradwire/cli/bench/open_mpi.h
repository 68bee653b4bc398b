#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/peers.h"

namespace gradwire {

/// Open MPI at its best: the first time it is asked it tries all its algorithms, and from then on
/// takes, for each case, the fastest.
class OpenMpi {
 public:
  /// `options` must live as long as this; `benchmark`: the compiled mpi_bench.c.
  OpenMpi(const BenchOptions& options, std::string benchmark)
      : options_(options), benchmark_(std::move(benchmark)) {}

  /// Always the same cases. Throws Exception(system, timeout).
  Rows measure(const Cases& cases);

 private:
  Words command(const Cases& cases, const std::string& algorithm) const;
  void find_best(const Cases& cases);
  void try_out(const Cases& cases, bool quick, const std::string& algorithm,
               std::vector<double>& fastest);

  const BenchOptions& options_;
  std::string benchmark_;
  std::vector<std::string> best_;  ///< By case.
};

}  // namespace gradwire
