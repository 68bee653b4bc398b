#pragma once

#include <functional>

#include "gradwire/base/clock.h"
#include "gradwire/trace/trace_clock.h"
#include "gradwire/trace/trace_peers.h"
#include "gradwire/trace/trace_rank.h"

namespace gradwire {

/// Compares this rank's clock with rank 0's, which answers one rank at a time. No other
/// communication should be in flight. Collective. Throws Exception.
ClockReading read_clock(TracePeers& peers, const Clock& clock);

/// On rank 0, passes the trace of every rank to `take`, in rank order, one in memory at a time; the
/// other ranks send theirs. Collective. Throws Exception: corrupted if a received trace cannot be
/// parsed.
void gather_traces(TracePeers& peers, const RankTrace& own,
                   const std::function<void(RankTrace)>& take);

}  // namespace gradwire
