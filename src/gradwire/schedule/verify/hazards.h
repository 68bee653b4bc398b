#pragma once

#include "gradwire/schedule/verify/precedence.h"
#include "gradwire/schedule/verify/violation.h"

namespace gradwire::proof {

/// Checks that any two ops of the rank that access the same memory, at least one of them writing,
/// are ordered.
MaybeViolation check_races(const ProgramSet& programs, const Precedence& precedence, Rank rank);

/// Checks that the dependencies of each receive of the rank have happened before the matching send,
/// byte by byte where the dependency is byte by byte. Then all other ops ordered before the receive
/// have happened too, since order follows from those dependencies or from the message itself.
MaybeViolation check_receives(const ProgramSet& programs, const std::vector<NodeId>& partner,
                              const Precedence& precedence, Rank rank);

}  // namespace gradwire::proof
