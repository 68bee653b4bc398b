#include "gradwire/trace/trace_intervals.h"

#include <algorithm>

namespace gradwire {

TraceIntervals united(TraceIntervals intervals) {
  std::ranges::sort(intervals, {}, &TraceInterval::begin);
  TraceIntervals result;
  for (const auto& next : intervals) {
    if (next.begin >= next.end) continue;
    if (result.empty() || next.begin > result.back().end) {
      result.push_back(next);
    } else {
      result.back().end = std::max(result.back().end, next.end);
    }
  }
  return result;
}

TraceIntervals without(const TraceIntervals& a, const TraceIntervals& b) {
  TraceIntervals result;
  auto hole = b.begin();
  for (auto [begin, end] : a) {
    while (hole != b.end() && hole->end <= begin) ++hole;
    for (auto next = hole; next != b.end() && next->begin < end; ++next) {
      if (begin < next->begin) result.push_back({begin, next->begin});
      begin = std::max(begin, next->end);
    }
    if (begin < end) result.push_back({begin, end});
  }
  return result;
}

Duration length_within(const TraceIntervals& intervals, TraceInterval window) {
  Duration length{};
  auto next = std::ranges::upper_bound(intervals, window.begin, {}, &TraceInterval::end);
  for (; next != intervals.end() && next->begin < window.end; ++next) {
    length += std::min(next->end, window.end) - std::max(next->begin, window.begin);
  }
  return length;
}

}  // namespace gradwire
