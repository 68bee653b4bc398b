#pragma once

#include <functional>

#include "gradwire/base/clock.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// A clock whose times can be waited for.
class Alarm : public Clock {
 public:
  /// Returns at `time`, or at once if that has passed.
  virtual void await(Time time) = 0;
};

/// The machine's: the thread is put to sleep until the moment itself, so that delays of one sleep
/// do not add up with those of the next, and it takes no processor from those who communicate.
class SteadyAlarm final : public Alarm {
 public:
  Time now() const override { return clock_.now(); }
  void await(Time time) override;

 private:
  SteadyClock clock_;
};

/// An accelerator that works off what is put into its queue, and of whose work only the time is
/// real. It does not wait for a host that is late, unless it had to: then stall() counts.
class EmulatedDevice {
 public:
  /// `alarm` must outlive it.
  explicit EmulatedDevice(Alarm& alarm) : alarm_(alarm), free_at_(alarm.now()) {}

  /// Computes for `duration` after what it computes already, and returns when that is done.
  void compute(Duration duration) {
    free_at_ += duration;
    alarm_.await(free_at_);
  }

  /// The same. Meanwhile the host, which has nothing else to do, looks after what has come: it
  /// calls `look` at once and then every millisecond, as long as that says that there is more to
  /// come.
  void compute(Duration duration, const std::function<bool()>& look);

  /// What is computed next had to wait for something that has come only now.
  void resume() {
    const Time now = alarm_.now();
    if (now <= free_at_) return;
    stalled_ += now - free_at_;
    free_at_ = now;
  }

  /// When it is, or was, done with everything.
  Time free_at() const { return free_at_; }
  /// How long it had nothing to do.
  Duration stalled() const { return stalled_; }

 private:
  Alarm& alarm_;
  Time free_at_;
  Duration stalled_{};
};

}  // namespace gradwire
