#pragma once

#include <functional>

#include "gradwire/base/clock.h"
#include "gradwire/base/types.h"

namespace gradwire::emulation {

/// A clock whose times can be waited for.
class Alarm : public Clock {
 public:
  /// Returns at `time`, or at once if that has passed.
  virtual void await(Time time) = 0;
};

/// The machine's clock. The thread sleeps until an absolute time, so that delays of successive
/// sleeps do not accumulate, and it takes no processor time from communication.
class SteadyAlarm final : public Alarm {
 public:
  Time now() const override { return clock_.now(); }
  void await(Time time) override;

 private:
  SteadyClock clock_;
};

/// An accelerator that executes its queue in order; only the time of its work is real. It does not
/// wait for a late host unless the host itself had to wait: then resume() records a stall.
class EmulatedDevice {
 public:
  /// `alarm` must outlive it.
  explicit EmulatedDevice(Alarm& alarm) : alarm_(alarm), free_at_(alarm.now()) {}

  /// Computes for `duration` after all queued work, and returns when that is done.
  void compute(Duration duration) {
    free_at_ += duration;
    alarm_.await(free_at_);
  }

  /// The overload above, but meanwhile the idle host polls for received data: it calls `poll` at
  /// once and then every millisecond, until `poll` returns false.
  void compute(Duration duration, const std::function<bool()>& poll);

  /// Called when the next computation had to wait for data that has just arrived.
  void resume() {
    const Time now = alarm_.now();
    if (now <= free_at_) return;
    stalled_ += now - free_at_;
    free_at_ = now;
  }

  /// The time when all its work is, or was, done.
  Time free_at() const { return free_at_; }
  /// Total idle time.
  Duration stalled() const { return stalled_; }

 private:
  Alarm& alarm_;
  Time free_at_;
  Duration stalled_{};
};

}  // namespace gradwire::emulation
