#include "gradwire/schedule/cost/executor_costs.h"

#include "gradwire/schedule/cost/constants.h"

namespace gradwire {

CostOptions executor_costs(std::size_t max_segment_bytes, int segments) {
  return {.segment_bytes = max_segment_bytes,
          .segments_per_message = segments > 0 ? segments : kSegmentsPerMessage,
          .max_segments = 1024,
          .per_segment = fitted::kSegmentTime,
          .per_segment_inside = fitted::kSegmentTimeInside,
          .reduce_bytes_per_second = fitted::kReduceRate,
          .incast = {.direct = fitted::kIncastDirect,
                     .forwarding = fitted::kIncastForwarding,
                     .inside = fitted::kIncastInside}};
}

}  // namespace gradwire
