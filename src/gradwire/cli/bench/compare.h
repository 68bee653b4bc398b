#pragma once

#include <vector>

#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/bench_report.h"

namespace gradwire::cli {

/// Measures the cases on gradwire and on the peers of --compare in turn, in --rounds rounds, so
/// that disturbances on the machine affect all systems alike. A peer that is not installed is
/// skipped with a line on stderr. Open MPI first tries all its algorithms and then uses the fastest
/// for each size.
///
/// Returns for each case one row per system, gradwire first. Throws Exception if a system fails.
/// `options` must have passed check_peers().
std::vector<std::vector<SystemRow>> compare(const BenchOptions& options,
                                            const std::vector<BenchCase>& cases,
                                            const bootstrap::Environment& environment);

/// Throws Exception(invalid_argument) for unknown peers, several algorithms, a type or reduction
/// that peers lack, or --explain.
void check_peers(const BenchOptions& options);

/// Measures the cases over a backend of torch.distributed, --engine, alone. `options` must have
/// passed check_backend(). Throws Exception if its ranks fail.
std::vector<SystemRow> measure_backend(const BenchOptions& options,
                                       const std::vector<BenchCase>& cases);

/// Throws Exception: invalid_argument for options that programs over torch.distributed lack;
/// unsupported if --python cannot run the backend here, or has fewer GPUs than NCCL's ranks need.
void check_backend(const BenchOptions& options);

}  // namespace gradwire::cli
