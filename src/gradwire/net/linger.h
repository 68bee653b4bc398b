#pragma once

#include <vector>

#include <poll.h>

#include "gradwire/net/deadline.h"

namespace gradwire {

/// Throws away what has arrived, without copying it (MSG_TRUNC, see tcp(7)). False at the end of
/// the stream, orderly or not.
bool discard_input(int descriptor);

/// Waits until the peers' kernels have all that was written to `streams`, which are shut down for
/// writing and wait for POLLIN; there is no event for that, so it looks each millisecond. Usually
/// the first look suffices.
void linger(std::vector<pollfd> streams, Deadline deadline);

}  // namespace gradwire
