#pragma once

#include <algorithm>

#include "gradwire/base/clock.h"

namespace gradwire {

/// Time limit of an operation on real sockets. Uses the machine's monotonic clock, not a Clock
/// parameter, because the kernel that waits knows no other.
class Deadline {
 public:
  explicit Deadline(Time at) : at_(at) {}
  static Deadline after(Duration duration) {
    return Deadline(gradwire::after(SteadyClock().now(), duration));
  }

  Time at() const { return at_; }
  bool passed() const { return left() == Duration::zero(); }

  /// Returns the remaining time; never negative.
  Duration left() const {
    const Time now = SteadyClock().now();
    return at_ <= now ? Duration::zero() : at_ - now;
  }

  /// Returns the earlier of this deadline and `duration` from now.
  Deadline or_after(Duration duration) const {
    return Deadline(std::min(at_, after(duration).at_));
  }

 private:
  Time at_;
};

/// Timeout for poll(2) and similar calls, rounded up so that no caller wakes early and spins.
inline int milliseconds_of(Duration duration) {
  constexpr auto kMaxTimeout = std::chrono::hours(24);
  const auto clamped = std::clamp<Duration>(duration, Duration::zero(), kMaxTimeout);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(clamped).count());
}

}  // namespace gradwire
