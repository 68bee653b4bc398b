#pragma once

#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// Half-open: includes `begin`, excludes `end`.
struct TraceInterval {
  Time begin{};
  Time end{};

  bool operator==(const TraceInterval&) const = default;
};

/// A set of moments: sorted intervals, none empty, none touching the next. All functions are exact,
/// as times are integer nanoseconds.
using TraceIntervals = std::vector<TraceInterval>;

/// Returns the union of intervals, which may be unsorted, overlapping or empty.
TraceIntervals united(TraceIntervals intervals);

/// Returns the moments of `a` that are not in `b`.
TraceIntervals without(const TraceIntervals& a, const TraceIntervals& b);

/// Returns the total length of the intervals inside `window`. O(log n + intervals inside).
Duration length_within(const TraceIntervals& intervals, TraceInterval window);

}  // namespace gradwire
