#include "gradwire/engine/executor_costs.h"

#include <chrono>

namespace gradwire {

CostOptions executor_costs(double message_bytes, std::size_t max_bytes, int segments) {
  const auto bytes = static_cast<std::size_t>(message_bytes);
  return {.segment_bytes = message_bytes > 0 ? segment_of(bytes, max_bytes, segments) : 0,
          .max_segments = 1024,
          .per_segment = std::chrono::microseconds(8),
          .per_segment_inside = std::chrono::nanoseconds(500),
          // Reading, checking and adding received bytes.
          .reduce_bytes_per_second = 3e9};
}

}  // namespace gradwire
