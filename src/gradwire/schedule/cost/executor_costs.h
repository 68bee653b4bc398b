#pragma once

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/segments.h"

namespace gradwire {

/// Returns what the executor over TCP was measured to cost (constants.h). `segments`: per message;
/// 0: the default.
CostOptions executor_costs(std::size_t max_segment_bytes = kMaxSegmentBytes, int segments = 0);

}  // namespace gradwire
