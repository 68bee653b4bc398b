#pragma once

#include <span>
#include <vector>

#include "gradwire/schedule/verify/verifier.h"

namespace gradwire::schedule::proof {

/// Executes all programs in the given order with expressions instead of numbers, once for each
/// Aliasing that the collective allows. Compares the outputs with what CollectiveSpec requires. As
/// no ops race, every order that the graph allows gives the same result.
MaybeViolation check_results(const ProgramSet& programs, const std::vector<NodeId>& partner,
                             std::span<const NodeId> order);

}  // namespace gradwire::schedule::proof
