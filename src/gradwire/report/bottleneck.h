#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/report/step_trace.h"

namespace gradwire {

/// One rank's steps in short.
struct RankMedians {
  Rank rank = 0;
  std::string host;
  std::size_t steps = 0;  ///< The medians are over so many.
  StepMedians step;
};

/// A step in the middle of all ranks: of each part the median over ranks.
StepMedians medians_over(const std::vector<RankMedians>& ranks);

/// The rank that is busy longest in a step, and so keeps the others waiting.
struct SlowestRank {
  std::size_t index = 0;  ///< In the list of ranks.
  double others = 0;      ///< Seconds for which the others are busy, the median of them.
  double excess = 0;      ///< Seconds that it takes longer; 0 for one rank.
  double ratio = 1;       ///< Its time by the others'.
};

/// `ranks` must not be empty.
SlowestRank slowest_of(const std::vector<RankMedians>& ranks);

/// What a step loses most time to.
enum class BottleneckCause {
  none,           ///< Nothing was recorded.
  communication,  ///< Waiting for gradients.
  data,           ///< Waiting for batches.
  straggler,      ///< Waiting for one rank that is slower than the others.
  compute,        ///< None of these takes a tenth of the step.
};

struct Bottleneck {
  BottleneckCause cause = BottleneckCause::none;
  double share = 0;  ///< Of a step, 0 .. 1; of `compute`: what is not waited.
  std::string text;  ///< One sentence: what, how much, and what to do.
};

/// Waiting for gradients is communication only as far as the slowest rank waits too: it waits for
/// nobody else. How much longer that one is busy than the others is the straggler's share.
Bottleneck bottleneck(const std::vector<RankMedians>& ranks);

}  // namespace gradwire
