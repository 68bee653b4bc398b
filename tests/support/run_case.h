#pragma once

#include "gradwire/comm/communicator.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {

/// Runs the collective of a case on one rank of a communicator. Returns the output.
Memory run_case(const Case& c, const Memory& input, Rank rank, Communicator& communicator,
                const OperationOptions& options);

}  // namespace gradwire::test
