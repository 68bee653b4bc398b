#pragma once

#include <vector>

#include "gradwire/schedule/verify/verifier.h"

namespace gradwire::schedule::proof {

/// Checks the schedule's own fields: ranks, chunks, root and target. Call it before making
/// programs.
MaybeViolation check_spec(const Schedule& schedule);

/// Checks every op of every rank by itself. The rest of the verifier relies on it.
MaybeViolation check_ops(const ProgramSet& programs);

/// Checks that every message has two ends of the same length. `partner` is
/// match_messages(programs).
MaybeViolation check_messages(const ProgramSet& programs, const std::vector<NodeId>& partner);

}  // namespace gradwire::schedule::proof
