#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/peers.h"

namespace gradwire {

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

}  // namespace gradwire
