#pragma once

#include <functional>
#include <string_view>

#include "gradwire/trace/trace_rank.h"

namespace gradwire {

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
