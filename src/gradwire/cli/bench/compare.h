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

}  // namespace gradwire::cli
