#include "gradwire/engine/executor_costs.h"

#include <algorithm>

#include "gradwire/schedule/cost/constants.h"

namespace gradwire {

CostOptions executor_costs(double message_bytes, std::size_t max_bytes, int segments) {
  const auto bytes = static_cast<std::size_t>(message_bytes);
  return {.segment_bytes = message_bytes > 0 ? segment_of(bytes, max_bytes, segments) : 0,
          .max_segments = 1024,
          .per_segment = fitted::kSegmentTime,
          .per_segment_inside = fitted::kSegmentTimeInside,
          .reduce_bytes_per_second = fitted::kReduceRate,
          .incast = {.direct = fitted::kIncastDirect,
                     .forwarding = fitted::kIncastForwarding,
                     .inside = fitted::kIncastInside}};
}

Estimate executor_estimate(const ScheduleCost& cost, const Topology& topology, std::size_t bytes,
                           const ExecutorSegments& segments) {
  const auto some = static_cast<double>(std::max<std::size_t>(bytes, 1));
  CostOptions costs =
      executor_costs(cost.largest_message() * some, segments.max_bytes, segments.per_message);
  costs.max_segments = segments.max_modeled;
  const ChunkLayout layout(cost.programs().schedule().chunks, bytes, 1);
  return cost.estimate(topology, layout, costs);
}

}  // namespace gradwire
