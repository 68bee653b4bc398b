#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Adds up how long a thread waits for other ranks: for activations and their gradients, for sums
/// of parallel layers, for norms and losses. Not for the units of a step engine, which has
/// StepStats of its own. Records each wait in a trace.
class WaitMeter {
 public:
  /// `trace` may be null; it must outlive this. Its clock then measures.
  WaitMeter(std::shared_ptr<const Clock> clock, TraceRecorder* trace)
      : clock_(std::move(clock)), trace_(trace) {}

  Duration waited() const { return waited_; }

 private:
  friend class MeasuredWait;

  Time now() const { return trace_ != nullptr ? trace_->now() : clock_->now(); }

  std::shared_ptr<const Clock> clock_;
  TraceRecorder* trace_;
  Duration waited_{};
};

/// While it exists, each MeasuredWait of this thread adds to `meter`, which must outlive it.
class [[nodiscard]] WaitScope {
 public:
  explicit WaitScope(WaitMeter& meter);
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  WaitMeter* before_;
};

/// A wait for other ranks, from construction to destruction. Outside of a WaitScope it does nothing
/// and does not read the clock. `name` must outlive it.
class [[nodiscard]] MeasuredWait {
 public:
  explicit MeasuredWait(std::string_view name);
  ~MeasuredWait();
  MeasuredWait(const MeasuredWait&) = delete;
  MeasuredWait& operator=(const MeasuredWait&) = delete;

 private:
  WaitMeter* meter_;
  std::string_view name_;
  Time begin_{};
};

/// Waits for a collective.
inline void wait_measured(c10d::Work& work, std::string_view name) {
  const MeasuredWait measured(name);
  work.wait();
}

}  // namespace gradwire
