#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/report/bottleneck.h"

namespace gradwire {

/// A trace in a few lines.
struct TraceSummary {
  std::string file;                ///< Where the whole of it is.
  std::vector<RankMedians> ranks;  ///< By rank.
  std::uint64_t spans = 0;         ///< In the file.
  std::uint64_t dropped = 0;       ///< Older ones that memory did not suffice for.
  Duration clock_error{};          ///< Ranks' clocks are aligned to within this.
};

/// What a step spends where (the median over ranks of each rank's median), the slowest rank and the
/// bottleneck.
std::string format_trace_summary(const TraceSummary& summary);

}  // namespace gradwire
