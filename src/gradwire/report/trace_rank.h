#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/report/memory_timeline.h"
#include "gradwire/report/trace.h"
#include "gradwire/report/trace_clock.h"

namespace gradwire {

/// What one rank adds to the trace of all.
struct TraceOfRank {
  Rank rank = 0;
  std::string host;
  ClockAlignment clock;
  TraceLog log;
  MemoryTimeline memory;  ///< No samples: not measured.
  Time memory_begin{};    ///< When its seconds begin.
};

/// All times on the reference's clock instead of the rank's own. What is left of the alignment is
/// its error.
TraceOfRank aligned(TraceOfRank trace);

/// For the way to the rank that writes the trace (CBOR).
std::vector<std::byte> encode_trace(const TraceOfRank& trace);

/// Errors: corrupted, if `bytes` cannot be what encode_trace() made.
Result<TraceOfRank> decode_trace(ConstBytes bytes);

}  // namespace gradwire
