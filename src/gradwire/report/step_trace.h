#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/report/trace.h"

namespace gradwire {

/// Where the time of one step on one rank went. Exact:
///   data + forward + backward + optimiser + exposed + other = total,
/// each counting the moments in which it was the innermost span. Communication is what buckets are
/// under way for and what is waited for, overlaps counted once, inside this step, whichever step
/// began it: hidden + exposed, and hidden is what went on behind the other parts.
struct StepBreakdown {
  std::int64_t step = 0;
  Time begin{};
  Duration total{};
  Duration data{};
  Duration forward{};
  Duration backward{};
  Duration optimiser{};
  Duration exposed{};  ///< Computing waited.
  Duration other{};
  Duration hidden{};
  std::uint64_t bytes = 0;  ///< Sent, if the step's span says so.

  Duration communication() const { return hidden + exposed; }
  /// What the rank did itself, rather than wait.
  Duration busy() const { return total - exposed; }
};

/// The steps of a log from which nothing is missing, in order of time.
std::vector<StepBreakdown> break_down(const TraceLog& log);

/// Medians over steps, in seconds; they need not add up. All zero for no steps.
struct StepMedians {
  double total = 0;
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimiser = 0;
  double exposed = 0;
  double other = 0;
  double hidden = 0;
  double busy = 0;
  double bytes = 0;
};

StepMedians medians_of(const std::vector<StepBreakdown>& steps);

}  // namespace gradwire
