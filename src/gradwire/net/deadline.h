#pragma once

#include <algorithm>

#include "gradwire/base/clock.h"

namespace gradwire::net {

/// Time limit of an operation by a clock, which must outlive it.
class Deadline {
 public:
  Deadline(const Clock& clock, Time at) : clock_(&clock), at_(at) {}
  static Deadline after(const Clock& clock, Duration duration) {
    return {clock, gradwire::after(clock.now(), duration)};
  }

  const Clock& clock() const { return *clock_; }
  Time at() const { return at_; }
  bool passed() const { return left() == Duration::zero(); }

  /// Returns the remaining time; never negative.
  Duration left() const {
    const Time now = clock_->now();
    return at_ <= now ? Duration::zero() : at_ - now;
  }

  /// Returns the earlier of this deadline and `duration` from now.
  Deadline or_after(Duration duration) const {
    return {*clock_, std::min(at_, after(*clock_, duration).at_)};
  }

 private:
  const Clock* clock_;
  Time at_;
};

/// Timeout for poll(2) and similar calls, rounded up so that no caller wakes early and spins.
inline int milliseconds_of(Duration duration) {
  constexpr auto kMaxTimeout = std::chrono::hours(24);
  const auto clamped = std::clamp<Duration>(duration, Duration::zero(), kMaxTimeout);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(clamped).count());
}

}  // namespace gradwire::net
