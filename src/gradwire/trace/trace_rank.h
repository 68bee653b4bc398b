#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/trace/memory_timeline.h"
#include "gradwire/trace/trace.h"
#include "gradwire/trace/trace_clock.h"

namespace gradwire {

/// One rank's part of a trace.
struct RankTrace {
  Rank rank = 0;
  std::string host;
  ClockAlignment clock;
  TraceLog log;
  MemoryTimeline memory;  ///< No samples: not measured.
  Time memory_begin{};    ///< Origin of its seconds.
};

/// Returns the trace with all times on the reference clock. The alignment then has only its error.
RankTrace aligned(RankTrace trace);

/// Encodes a trace for the rank that writes the file (CBOR).
std::vector<std::byte> encode_trace(const RankTrace& trace);

/// Error: corrupted, if `bytes` is not a valid output of encode_trace().
Result<RankTrace> decode_trace(ConstBytes bytes);

}  // namespace gradwire
