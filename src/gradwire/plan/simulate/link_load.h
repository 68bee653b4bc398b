#pragma once

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Returns the share of all chunks' bytes that a port sends or receives: the maximum of a few
/// hosts.
double port_share(const Schedule& schedule, const Fabric& fabric);

/// Returns the rate of the slowest port as a share of the common rate.
double slowest_port(const Fabric& fabric);

/// Returns the extra busy seconds of the most loaded port or uplink over an equal port, per byte of
/// all chunks, if all hosts send alike. If hosts send to one distance after the other (xor: an
/// exchange of doubling distance), the extra time of each distance adds up. Otherwise the loads
/// overlap.
double extra_load(const HostTraffic& traffic, const Fabric& fabric);

/// As above for any schedule, from the programs of all ranks.
double extra_load(const Schedule& schedule, const Fabric& fabric);

}  // namespace gradwire
