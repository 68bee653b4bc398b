#pragma once

#include <span>
#include <string>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/comm/tuner.h"

namespace gradwire {

/// Returns a line that names the links on which the estimates of --explain are based.
std::string links_explained(const Environment& environment);

/// Returns the setting that overrides the tuner: "--algorithm says ring, tree"; empty: none. Throws
/// Exception(invalid_argument) if GRADWIRE_ALGORITHM is invalid, as connecting a communicator does.
std::string overriding_choice(const BenchOptions& options, Collective collective,
                              const Environment& environment);

/// Returns one line per algorithm with the tuner's estimate, best first. `overriding`: result of
/// overriding_choice().
std::string estimates_explained(const BenchCase& what, std::span<const AlgorithmEstimate> estimates,
                                const std::string& overriding);

}  // namespace gradwire
