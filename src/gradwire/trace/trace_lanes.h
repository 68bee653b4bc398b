#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/trace/trace.h"

namespace gradwire {

/// Position of a span in a drawing.
struct SpanLane {
  std::size_t span = 0;  ///< Index of the span.
  bool communication = false;
  int lane = 0;  ///< From 0; communication and computing are numbered separately.
};

/// Assigns each span to the first lane in which it fits. Spans in a communication lane do not
/// overlap; spans in a computing lane are disjoint or nested. Returns them in the order of begin,
/// outer before inner.
std::vector<SpanLane> assign_lanes(const std::vector<TraceSpan>& spans);

}  // namespace gradwire
