#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/trace/trace.h"

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

/// Breakdown of the time of one step on one rank. Exact:
///   data + forward + backward + optimizer + exposed + other = total,
/// where each part counts the moments in which it was the innermost span. Communication = hidden +
/// exposed: the time within this step in which a bucket is in flight or computing waits, overlaps
/// counted once, whichever step began it. `hidden` is the share that overlaps the other parts.
struct StepBreakdown {
  std::int64_t step = 0;
  Time begin{};
  Duration total{};
  Duration data{};
  Duration forward{};
  Duration backward{};
  Duration optimizer{};
  Duration exposed{};  ///< Computing waited.
  Duration other{};
  Duration hidden{};
  std::uint64_t bytes = 0;  ///< Sent, if the step's span has it.

  Duration communication() const { return hidden + exposed; }
  /// Time in which the rank did not wait for communication.
  Duration busy() const { return total - exposed; }
};

/// Returns the complete steps of a log, in order of time.
std::vector<StepBreakdown> break_down(const TraceLog& log);

/// Medians over steps, in seconds; their sum may differ from the total. All zero for no steps.
struct StepMedians {
  double total = 0;
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  double exposed = 0;
  double other = 0;
  double hidden = 0;
  double busy = 0;
  double bytes = 0;
};

StepMedians medians_of(const std::vector<StepBreakdown>& steps);

}  // namespace gradwire
