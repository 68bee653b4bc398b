#pragma once

#include <vector>

#include <poll.h>

#include "gradwire/net/deadline.h"

namespace gradwire {

/// Discards received data without copying it (MSG_TRUNC, see tcp(7)). Returns false at the end of
/// the stream, orderly or not.
bool discard_input(int descriptor);

/// Waits until the peers' kernels have received everything written to `streams`, which must be shut
/// down for writing and have POLLIN as events. There is no event for that, so it polls every
/// millisecond; usually the first check suffices.
void linger(std::vector<pollfd> streams, Deadline deadline);

}  // namespace gradwire
