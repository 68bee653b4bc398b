#pragma once

#include <algorithm>
#include <cstddef>

#include "gradwire/comm/outbox.h"

namespace gradwire {

/// Bytes of the segments that the executor cuts a message into (comm/outbox.cpp).
inline std::size_t executor_segment(double message_bytes) {
  const auto part = static_cast<std::size_t>(message_bytes) / kSegmentsPerMessage;
  return std::clamp(part, kSmallestSegment, OutboxLimits{}.segment_bytes);
}

}  // namespace gradwire
