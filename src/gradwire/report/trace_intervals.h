#pragma once

#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// From `begin` up to and without `end`.
struct TraceInterval {
  Time begin{};
  Time end{};

  bool operator==(const TraceInterval&) const = default;
};

/// A set of moments: intervals in order, none empty, none touching the next. All functions are
/// exact: times are whole nanoseconds.
using TraceIntervals = std::vector<TraceInterval>;

/// All moments in any of these intervals, which may be in any order, overlap or be empty.
TraceIntervals united(TraceIntervals intervals);

/// The moments of `a` that are not in `b`.
TraceIntervals without(const TraceIntervals& a, const TraceIntervals& b);

/// How long all of them are together inside `window`. O(log n + those inside).
Duration length_within(const TraceIntervals& intervals, TraceInterval window);

}  // namespace gradwire
