#pragma once

#include <memory>

#include "gradwire/gradient/shard_exchange.h"
#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

/// For `units` units in an accelerator's memory: `own` exchanges them in pinned host memory, to and
/// from which they are copied in the order of streams. After a wait the caller's current stream
/// goes on when the results are there. `trace` may be null.
std::unique_ptr<UnitExchange> staged_exchange(Rank rank, std::unique_ptr<ShardExchange> own,
                                              std::size_t units, TraceRecorder* trace);

}  // namespace gradwire
