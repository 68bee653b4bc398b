#pragma once

#include <cstddef>
#include <functional>

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {

/// Maximum number of ranks that send to one receiver (incast), if it exceeds ceil(log2 P), the
/// number of partners in a butterfly; otherwise 0. A butterfly's partners send one after the other,
/// so their messages do not compete. Counts only senders for which `counts(receiver, sender)`
/// holds.
std::size_t max_fan_in(const ProgramSet& programs, const std::function<bool(Rank, Rank)>& counts);

/// Slowdown factor of an operation due to incast at the busiest ports, where streams from other
/// hosts compete. Measured over TCP on shaped links. Where data goes to its owners and back, three
/// streams lose almost none of the port's rate, five 3 %, seven 10 %. Where ranks forward data, as
/// in trees, streams delay those on the critical path: each stream beyond the second costs 6.5 %.
double incast_factor(const ScheduleCost& cost, const Topology& topology);

}  // namespace gradwire
