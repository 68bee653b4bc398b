#pragma once

#include <vector>

#include "gradwire/schedule/proof/violation.h"

namespace gradwire::proof {

/// The schedule's own numbers make sense: ranks, chunks, root and target. To be called before its
/// programs are made.
MaybeViolation check_spec(const Schedule& schedule);

/// Every op of every rank makes sense by itself: the rest of the verifier relies on it.
MaybeViolation check_ops(const ProgramSet& programs);

/// Every message has two ends of the same length. `partner` is match_messages(programs).
MaybeViolation check_messages(const ProgramSet& programs, const std::vector<NodeId>& partner);

}  // namespace gradwire::proof
