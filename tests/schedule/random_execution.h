#pragma once

#include <string>

#include "gradwire/base/random.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::test {

/// Runs a schedule on strings in place of numbers, one action at a time in an order drawn from
/// `random`: a rank starts, an op processes its next byte (each chunk has two), a byte arrives. It
/// is independent of the verifier, so that the two check each other. `in_place`: input and output
/// are the same memory.
///
/// Returns the problem, or an empty string: a deadlock, a receive that was not ready for its bytes,
/// a barrier that was left before all had started, or an output that differs from CollectiveSpec.
/// The schedule must be well formed, with matching messages.
std::string execute_at_random(const schedule::Schedule& schedule, bool in_place, Random& random);

}  // namespace gradwire::test
