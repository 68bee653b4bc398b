#pragma once

#include <vector>

#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/bench_report.h"

namespace gradwire {

/// Measures the cases on gradwire and on the peers of --compare, in turn, as often as --rounds
/// says, so that what else the machine does meets all of them. A peer that is not installed is left
/// out, and a line on stderr says why. Open MPI first tries all its algorithms and then takes, for
/// each size, the fastest.
///
/// Returns for each case a row for each system, gradwire's first. Throws Exception: what the
/// systems fail with. `options` have passed check_peers().
std::vector<std::vector<SystemRow>> compare(const BenchOptions& options,
                                            const std::vector<BenchCase>& cases,
                                            const Environment& environment);

/// Throws Exception(invalid_argument) for unknown peers, a type or reduction that they lack, or
/// --explain.
void check_peers(const BenchOptions& options);

}  // namespace gradwire
