#pragma once

#include <functional>
#include <string_view>

#include "gradwire/report/trace_rank.h"

namespace gradwire {

/// Writes the JSON that ui.perfetto.dev and chrome://tracing load ("Trace Event Format", JSON
/// object form): a process a rank, named with its host; a thread for computing and as many for
/// communication as there are buckets under way at once; complete ("X") events with times in
/// microseconds since `origin`, and step and bytes as arguments; arrows ("s", "t", "f") from where
/// something was launched to the wait for it; where memory was measured, counter ("C") events with
/// bytes by category. One rank at a time is in memory.
class ChromeTraceWriter {
 public:
  /// Takes the next piece of the text.
  using Sink = std::function<void(std::string_view)>;

  ChromeTraceWriter(Sink sink, Time origin);

  /// `trace` is aligned() to the clock of `origin`.
  void add(const TraceOfRank& trace);

  /// Ends the text. Nothing may be added afterwards.
  void finish();

 private:
  void event(std::string_view json);

  Sink sink_;
  Time origin_;
  bool first_ = true;
};

}  // namespace gradwire
