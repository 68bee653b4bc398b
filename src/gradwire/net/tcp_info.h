#pragma once

#include "gradwire/base/types.h"

namespace gradwire {

/// The least round trip that the kernel has seen on a TCP connection (tcpi_min_rtt, a minimum over
/// minutes): what travelling takes, without queues. Zero: not known.
Duration least_round_trip(int descriptor);

}  // namespace gradwire
