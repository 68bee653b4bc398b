#pragma once

#include <span>
#include <vector>

#include "gradwire/schedule/proof/violation.h"

namespace gradwire::proof {

/// Runs all programs with expressions for numbers, in the given order, once for each Aliasing that
/// the collective allows, and compares what the outputs then hold with what CollectiveSpec asks
/// for. Since nothing races, any order that the graph allows computes the same.
MaybeViolation check_results(const ProgramSet& programs, const std::vector<NodeId>& partner,
                             std::span<const NodeId> order);

}  // namespace gradwire::proof
