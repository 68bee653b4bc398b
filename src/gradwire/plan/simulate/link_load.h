#pragma once

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// What the port of one of a few hosts sends or receives: of all chunks' bytes, the most.
double port_share(const Schedule& schedule, const Fabric& fabric);

/// Share of the rate that all have.
double slowest_port(const Fabric& fabric);

/// Seconds that the most loaded port, or link of a rack, is busy beyond those of an equal port, for
/// each byte of all chunks, where all hosts send alike. What goes to one distance after the other
/// (xor: an exchange of doubling distance) waits each time; otherwise the loads add up and overlap.
double extra_load(const HostTraffic& traffic, const Fabric& fabric);

/// The same of any schedule, from the programs of all ranks.
double extra_load(const Schedule& schedule, const Fabric& fabric);

}  // namespace gradwire
