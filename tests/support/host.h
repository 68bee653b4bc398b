#pragma once

#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::test {

/// This host's network and clock.
inline const net::KernelNetwork kNetwork;
inline const Clock& kClock = kNetwork.clock();

}  // namespace gradwire::test
