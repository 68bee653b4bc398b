#pragma once

#include "gradwire/base/types.h"

namespace gradwire::net {

/// Returns the minimum round-trip time that the kernel has measured on a TCP connection
/// (tcpi_min_rtt, a minimum over minutes): the propagation delay without queues. Zero: unknown.
Duration min_round_trip(int descriptor);

}  // namespace gradwire::net
