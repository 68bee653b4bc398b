#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "gradwire/trace/trace.h"
#include "gradwire/trace/trace_rank.h"

namespace gradwire {

/// Position of a span in a drawing.
struct SpanLane {
  std::size_t span = 0;  ///< Index of the span.
  bool communication = false;
  int lane = 0;  ///< From 0; communication and computing are numbered separately.
};

/// Assigns each span to the first lane in which it fits. Spans in a communication lane do not
/// overlap; spans in a computing lane are disjoint or nested. Returns them in the order of begin,
/// outer before inner.
std::vector<SpanLane> assign_lanes(const std::vector<TraceSpan>& spans);

/// A communication and the wait for it: indices into a log's spans.
struct TraceFlow {
  std::size_t communication = 0;
  std::size_t wait = 0;
};

/// Returns, for every wait named "wait for X", the last communication X that began before the wait
/// ended, if any. In the order of the waits.
std::vector<TraceFlow> flows_of(const TraceLog& log);

/// Writes JSON for ui.perfetto.dev and chrome://tracing ("Trace Event Format", JSON object form).
/// One process per rank, named with its host; one thread for computing, and as many for
/// communication as buckets are in flight at the same time. Complete ("X") events have times in
/// microseconds since `origin`, and step and bytes as arguments. Arrows ("s", "t", "f") lead from a
/// launch to the wait for it. Where memory was measured, counter ("C") events have bytes by
/// category. Holds one rank in memory at a time.
class ChromeTraceWriter {
 public:
  /// Receives the next piece of the text.
  using Sink = std::function<void(std::string_view)>;

  ChromeTraceWriter(Sink sink, Time origin);

  /// `trace` must be aligned() to the clock of `origin`.
  void add(const RankTrace& trace);

  /// Ends the text; no call may follow.
  void finish();

 private:
  void event(std::string_view json);

  Sink sink_;
  Time origin_;
  bool first_ = true;
};

}  // namespace gradwire
