#pragma once

#include <span>
#include <string>

#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/tuner.h"

namespace gradwire {

/// What --explain's estimates stand on, as a line.
std::string links_explained(const Environment& environment);

/// Who chooses the algorithms in the tuner's place: "--algorithm says ring, tree". Empty: nobody.
/// Throws Exception(invalid_argument) as a communicator does that the environment means.
std::string overriding_choice(const BenchOptions& options, Collective collective,
                              const Environment& environment);

/// What the tuner expects of each algorithm, best first, and what makes the difference: a line
/// each. `overriding`: of overriding_choice().
std::string estimates_explained(const BenchCase& what, std::span<const AlgorithmEstimate> estimates,
                                const std::string& overriding);

}  // namespace gradwire
