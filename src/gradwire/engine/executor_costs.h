#pragma once

#include <cstddef>

#include "gradwire/engine/outbox.h"
#include "gradwire/schedule/cost/cost.h"

namespace gradwire {

/// What a message costs processors, as it was measured on the executor over TCP, and segments of
/// the size that it cuts messages of `message_bytes` into: segment_of(message_bytes, max_bytes,
/// segments).
/// With 0 segment_bytes is 0 too, for models that cut each message by itself.
CostOptions executor_costs(double message_bytes = 0,
                           std::size_t max_bytes = OutboxLimits{}.segment_bytes, int segments = 0);

}  // namespace gradwire
