#pragma once

#include <optional>
#include <string>

#include "gradwire/schedule/program_set.h"
#include "gradwire/schedule/verify/verifier.h"

/// Construction of the verifier's reports.
namespace gradwire::proof {

using MaybeViolation = std::optional<Violation>;

/// "ring all_reduce of 4 ranks: <what>".
Violation make_violation(const Schedule& schedule, Fault fault, const std::string& what);

/// "ring all_reduce of 4 ranks: rank 2, op 5 (send output[1] -> rank 3): <what>".
Violation make_violation(const ProgramSet& programs, NodeId node, Fault fault,
                         const std::string& what);

/// "rank 2, op 5 (send output[1] -> rank 3)".
std::string describe(const ProgramSet& programs, NodeId node);

}  // namespace gradwire::proof
