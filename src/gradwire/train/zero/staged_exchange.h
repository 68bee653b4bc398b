#pragma once

#include <memory>

#include "gradwire/gradient/shard_exchange.h"
#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

/// Exchanges `units` units in an accelerator's memory: `own` exchanges them in pinned host memory,
/// with copies in stream order. A wait makes the caller's current stream wait for the results.
/// `trace` may be null.
std::unique_ptr<UnitExchange> staged_exchange(Rank rank, std::unique_ptr<ShardExchange> own,
                                              std::size_t units, TraceRecorder* trace);

}  // namespace gradwire
