#pragma once

#include <functional>

#include "gradwire/base/clock.h"
#include "gradwire/gradient/trace_peers.h"
#include "gradwire/report/trace_clock.h"
#include "gradwire/report/trace_rank.h"

namespace gradwire {

/// Reads this rank's clock against rank 0's, which answers one rank after the other. Nothing else
/// should be under way meanwhile. Collective. Throws Exception.
ClockReading read_clock(TracePeers& peers, const Clock& clock);

/// On rank 0, hands `take` the trace of every rank, by rank, one in memory at a time; the others
/// send theirs. Collective. Throws Exception: also corrupted, if what a rank sent cannot be read.
void gather_traces(TracePeers& peers, const TraceOfRank& own,
                   const std::function<void(TraceOfRank)>& take);

}  // namespace gradwire
