#pragma once

#include "gradwire/schedule/proof/precedence.h"
#include "gradwire/schedule/proof/violation.h"

namespace gradwire::proof {

/// No two ops of the rank touch the same memory, one of them writing, without being in order.
MaybeViolation check_races(const ProgramSet& programs, const Precedence& precedence, Rank rank);

/// Whatever an op of the rank comes after, if it is a receive, has happened before the matching
/// send, byte by byte where that is what it waits for. Then so has everything else that the receive
/// is in order with, since order comes along those arrows or with the message itself.
MaybeViolation check_receives(const ProgramSet& programs, const std::vector<NodeId>& partner,
                              const Precedence& precedence, Rank rank);

}  // namespace gradwire::proof
