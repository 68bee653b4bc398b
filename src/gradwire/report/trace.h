#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// What a stretch of time went into. All but `communication` are of the thread that computes; they
/// nest, and a moment counts for the innermost.
enum class TraceKind : std::uint8_t {
  step,     ///< A whole step: everything else of it happens inside. Its bytes: sent in it.
  data,     ///< Waiting for the next batch.
  forward,  ///< Also the loss.
  backward,
  optimiser,
  wait,           ///< Computing stands still until communication is over.
  communication,  ///< A bucket is under way, whatever is computed meanwhile.
  other,          ///< Anything else that deserves a name.
};

/// "step", "data", ...
std::string_view name_of(TraceKind kind);

struct TraceSpan {
  TraceKind kind = TraceKind::other;
  std::uint32_t name = 0;  ///< Index into TraceLog::names.
  std::int64_t step = -1;  ///< In which it began; < 0: before the first.
  Time begin{};
  Time end{};
  std::uint64_t bytes = 0;
};

/// What one rank recorded, on its own clock.
struct TraceLog {
  std::vector<std::string> names;
  std::vector<TraceSpan> spans;  ///< In the order in which they ended.
  std::uint64_t dropped = 0;     ///< Spans that the newer ones took the place of.
  Time whole_from{};             ///< From here on none is missing.
};

/// Keeps a rank's newest spans in bounded memory (48 bytes each). A span costs two readings of the
/// clock and one uncontended lock. Thread-safe.
///
/// Who records: `gradwire train`, `gradwire bench step`, or any loop of one's own:
///
///     TraceSession session(...);                        // gradient/trace_session.h
///     TraceRecorder* trace = session.recorder();        // null: nothing is recorded, at no cost
///     averager = trace_averager(std::move(averager), trace);  // buckets, and waits
///     for (...) {
///       TraceStep step(trace, number);
///       { TraceScope scope(trace, TraceKind::data); ... }
///       { TraceScope scope(trace, TraceKind::forward); ... }
///       { TraceScope scope(trace, TraceKind::forward, "conv1"); ... }  // or with a name
///     }
///     session.finish();                                 // collective; rank 0 writes the file
class TraceRecorder {
 public:
  static constexpr std::size_t kSpans = 1 << 16;
  static constexpr std::size_t kNames = 1 << 12;  ///< Further ones become "...".

  /// `clock` must outlive it. `capacity`: most spans that are kept; at least 1.
  explicit TraceRecorder(const Clock& clock, std::size_t capacity = kSpans);

  Time now() const { return clock_.now(); }

  /// The step that spans belong to which begin from now on.
  void begin_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// Has `observer(step)` called at each beginning and end of a TraceScope, on its thread: to
  /// sample something else then. Before the first scope.
  void observe(std::function<void(std::int64_t step)> observer) { observer_ = std::move(observer); }
  void tell_observer() const {
    if (observer_) observer_(step());
  }

  /// An empty name is that of the kind.
  void record(TraceKind kind, std::string_view name, std::int64_t step, Time begin, Time end,
              std::uint64_t bytes = 0);

  /// What has been recorded and not been overwritten.
  TraceLog log() const;

 private:
  std::uint32_t number_of(std::string_view name);

  const Clock& clock_;
  const std::size_t capacity_;
  std::atomic<std::int64_t> step_{-1};
  std::function<void(std::int64_t)> observer_;

  mutable std::mutex mutex_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> names_;
  std::vector<TraceSpan> ring_;
  std::uint64_t recorded_ = 0;
  Time whole_from_{};
};

/// A span from here to the end of the block. With a null recorder it does nothing, not even read
/// the clock. `name` must live as long as this.
class [[nodiscard]] TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, TraceKind kind, std::string_view name = {})
      : recorder_(recorder), kind_(kind), name_(name) {
    if (recorder_ == nullptr) return;
    step_ = recorder_->step();
    recorder_->tell_observer();
    begin_ = recorder_->now();
  }
  ~TraceScope() {
    if (recorder_ != nullptr) {
      recorder_->record(kind_, name_, step_, begin_, recorder_->now(), bytes_);
      recorder_->tell_observer();
    }
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  void set_bytes(std::uint64_t bytes) { bytes_ = bytes; }

 private:
  TraceRecorder* recorder_;
  TraceKind kind_;
  std::string_view name_;
  std::int64_t step_ = -1;
  Time begin_{};
  std::uint64_t bytes_ = 0;
};

/// A whole step, from here to the end of the block.
class [[nodiscard]] TraceStep {
 public:
  TraceStep(TraceRecorder* recorder, std::int64_t step)
      : scope_(begun(recorder, step), TraceKind::step) {}

  /// What this rank sent in it.
  void set_bytes(std::uint64_t bytes) { scope_.set_bytes(bytes); }

 private:
  static TraceRecorder* begun(TraceRecorder* recorder, std::int64_t step) {
    if (recorder != nullptr) recorder->begin_step(step);
    return recorder;
  }

  TraceScope scope_;
};

}  // namespace gradwire
