#pragma once

#include <string>

#include "gradwire/base/random.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::testing_support {

/// Runs a schedule with text for numbers, doing one thing at a time in an order drawn from
/// `random`: a rank starts, an op does its next byte (each chunk has two), a byte arrives. It knows
/// nothing of how the verifier thinks, so the two check each other. `in_place`: input and output
/// are the same memory.
///
/// Returns what went wrong, empty if nothing did: somebody got stuck, a receive was not ready for
/// its bytes, a barrier was left before all had started, or an output is not what CollectiveSpec
/// says. The schedule must be well formed and its messages matched.
std::string execute_at_random(const Schedule& schedule, bool in_place, Random& random);

}  // namespace gradwire::testing_support
