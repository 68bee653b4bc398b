#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/trace/step_trace.h"

namespace gradwire {

/// Summary of one rank's steps.
struct RankMedians {
  Rank rank = 0;
  std::string host;
  std::size_t steps = 0;  ///< Number of steps that the medians are over.
  StepMedians step;
};

/// Returns the median over ranks of each part of a step.
StepMedians medians_over(const std::vector<RankMedians>& ranks);

/// The rank with the longest busy time per step, which the other ranks wait for.
struct SlowestRank {
  std::size_t index = 0;  ///< Index into the list of ranks.
  double others = 0;      ///< Median busy time of the other ranks, in seconds.
  double excess = 0;      ///< Its busy time minus `others`, in seconds; 0 for one rank.
  double ratio = 1;       ///< Its busy time divided by `others`.
};

/// `ranks` must not be empty.
SlowestRank slowest_of(const std::vector<RankMedians>& ranks);

/// The dominant loss of time in a step.
enum class BottleneckCause {
  none,           ///< Nothing was recorded.
  communication,  ///< Waiting for gradients, activations, or sums of layers.
  data,           ///< Waiting for batches.
  straggler,      ///< Waiting for one rank that is slower than the others.
  compute,        ///< None of these takes a tenth of the step.
};

struct Bottleneck {
  BottleneckCause cause = BottleneckCause::none;
  double share = 0;  ///< Share of a step, 0 .. 1; for `compute`, the share not spent waiting.
  std::string text;  ///< One sentence: cause, size and remedy.
};

/// Returns the bottleneck of a step. Waiting for gradients counts as communication only as far as
/// the slowest rank waits too, as that rank waits for no other. The straggler's share is how much
/// longer the slowest rank is busy than the others.
Bottleneck bottleneck(const std::vector<RankMedians>& ranks);

/// Summary of a trace.
struct TraceSummary {
  std::string file;                ///< File of the complete trace.
  std::vector<RankMedians> ranks;  ///< In the order of ranks.
  std::uint64_t spans = 0;         ///< In the file.
  std::uint64_t dropped = 0;       ///< Older spans, overwritten in the ring buffer.
  Duration clock_error{};          ///< Maximum error of the ranks' aligned clocks.
  bool in_step = true;             ///< Ranks wait for each other in each step.
};

/// Formats the parts of a step (median over ranks of each rank's median), the slowest rank, and the
/// bottleneck of ranks in step.
std::string format_trace_summary(const TraceSummary& summary);

}  // namespace gradwire
