#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/trace/memory_timeline.h"
#include "gradwire/trace/trace.h"
#include "gradwire/trace/trace_peers.h"
#include "gradwire/trace/trace_summary.h"

namespace gradwire {

struct TraceOptions {
  std::filesystem::path file;  ///< Only rank 0's is used. Empty on every rank: nothing is recorded.
  std::string host;            ///< Name of this rank's host, for display.
  std::size_t spans = TraceRecorder::kSpans;  ///< Maximum spans a rank keeps: the newest.
};

/// One trace of all ranks, from start to finish. All ranks create a session together, all with or
/// all without a file, record on it, and finish together:
///
///     TraceSession session({.file = path, .host = name}, trace_peers(communicator), clock);
///     exchange = make_exchange(communicator, units, options, session.recorder());
///     ...                                     // TraceStep and TraceScope on session.recorder()
///     if (const auto summary = session.finish()) std::cout << format_trace_summary(*summary);
class TraceSession {
 public:
  /// Compares the clocks (collective), and on rank 0 checks that the file can be written. `clock`
  /// must outlive it. Throws Exception.
  TraceSession(TraceOptions options, std::unique_ptr<TracePeers> peers, const Clock& clock);
  ~TraceSession();

  /// Returns null if nothing is recorded.
  TraceRecorder* recorder();

  /// Adds a memory timeline to the trace; its seconds count from `begin` of the session's clock.
  /// Called before finish().
  void add_memory(MemoryTimeline memory, Time begin);

  /// Gathers all traces. Rank 0 writes the file atomically and returns the summary; other ranks,
  /// and all if nothing is recorded, return nothing. Collective. Nothing may be in flight, and the
  /// session records nothing afterwards. Throws Exception.
  std::optional<TraceSummary> finish();

 private:
  class Recording;
  std::unique_ptr<Recording> recording_;  ///< Null if nothing is recorded.
};

}  // namespace gradwire
