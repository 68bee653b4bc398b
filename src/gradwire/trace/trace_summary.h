#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/trace/bottleneck.h"

namespace gradwire {

/// Summary of a trace.
struct TraceSummary {
  std::string file;                ///< File of the complete trace.
  std::vector<RankMedians> ranks;  ///< In the order of ranks.
  std::uint64_t spans = 0;         ///< In the file.
  std::uint64_t dropped = 0;       ///< Older spans, overwritten in the ring buffer.
  Duration clock_error{};          ///< Maximum error of the ranks' aligned clocks.
};

/// Formats the parts of a step (median over ranks of each rank's median), the slowest rank and the
/// bottleneck.
std::string format_trace_summary(const TraceSummary& summary);

}  // namespace gradwire
