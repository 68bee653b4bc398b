#pragma once

#include <cstddef>

#include "gradwire/comm/outbox.h"
#include "gradwire/schedule/cost.h"

namespace gradwire {

/// What a message costs processors, as it was measured on the executor over TCP, and segments of
/// the size that it cuts messages of `message_bytes` into (outbox.h), at most `most_bytes`; 0: not
/// known yet, and of no size.
CostOptions executor_costs(double message_bytes = 0,
                           std::size_t most_bytes = OutboxLimits{}.segment_bytes);

}  // namespace gradwire
