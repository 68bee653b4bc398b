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

/// The activity of a span of time. All kinds but `communication` belong to the computing thread.
/// They nest, and each moment counts for the innermost span.
enum class TraceKind : std::uint8_t {
  step,     ///< A whole step, which contains its other spans. Its bytes: sent in the step.
  data,     ///< Waiting for the next batch.
  forward,  ///< Includes the loss.
  backward,
  optimizer,
  wait,           ///< Computing waits for communication to complete.
  communication,  ///< A bucket is in flight, possibly during compute.
  other,          ///< Any other named span.
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

/// Spans recorded by one rank, on its own clock.
struct TraceLog {
  std::vector<std::string> names;
  std::vector<TraceSpan> spans;  ///< In the order in which they ended.
  std::uint64_t dropped = 0;     ///< Spans overwritten by newer ones.
  Time complete_since{};         ///< No span that ends later is missing.
};

/// Keeps a rank's newest spans in bounded memory (48 bytes each). A span costs two clock readings
/// and one uncontended lock. Thread-safe.
///
/// Used by `gradwire train`, `gradwire bench step`, and any training loop:
///
///     TraceSession session(...);                        // trace/trace_session.h
///     TraceRecorder* trace = session.recorder();        // null: nothing is recorded, at no cost
///     exchange = make_exchange(communicator, units, options, trace);  // units, and waits
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
  static constexpr std::size_t kMaxNames = 1 << 12;  ///< Further names become "...".

  /// `clock` must outlive this object. `capacity`: maximum number of spans kept; at least 1.
  explicit TraceRecorder(const Clock& clock, std::size_t capacity = kSpans);

  Time now() const { return clock_.now(); }

  /// Sets the step of spans that begin afterwards.
  void begin_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// Calls `observer(step)` at each beginning and end of a TraceScope, on its thread, so that it
  /// can sample other values. To be set before the first scope.
  void observe(std::function<void(std::int64_t step)> observer) { observer_ = std::move(observer); }
  void notify_observer() const {
    if (observer_) observer_(step());
  }

  /// An empty name means that of the kind.
  void record(TraceKind kind, std::string_view name, std::int64_t step, Time begin, Time end,
              std::uint64_t bytes = 0);

  /// Returns the spans that have not been overwritten.
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
  Time complete_since_{};
};

/// Records a span from construction to destruction. With a null recorder it does nothing and does
/// not read the clock. `name` must outlive this object.
class [[nodiscard]] TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, TraceKind kind, std::string_view name = {})
      : recorder_(recorder), kind_(kind), name_(name) {
    if (recorder_ == nullptr) return;
    step_ = recorder_->step();
    recorder_->notify_observer();
    begin_ = recorder_->now();
  }
  ~TraceScope() {
    if (recorder_ != nullptr) {
      recorder_->record(kind_, name_, step_, begin_, recorder_->now(), bytes_);
      recorder_->notify_observer();
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

/// Records a step from construction to destruction.
class [[nodiscard]] TraceStep {
 public:
  TraceStep(TraceRecorder* recorder, std::int64_t step)
      : scope_(begun(recorder, step), TraceKind::step) {}

  /// Bytes sent by this rank in the step.
  void set_bytes(std::uint64_t bytes) { scope_.set_bytes(bytes); }

 private:
  static TraceRecorder* begun(TraceRecorder* recorder, std::int64_t step) {
    if (recorder != nullptr) recorder->begin_step(step);
    return recorder;
  }

  TraceScope scope_;
};

}  // namespace gradwire
