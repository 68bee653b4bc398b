#pragma once

#include <algorithm>

#include "gradwire/base/clock.h"

namespace gradwire {

/// The moment by which something over real sockets must have happened. On the machine's clock, not
/// on one handed in: the kernel that waits for us knows no other.
class Deadline {
 public:
  explicit Deadline(Time at) : at_(at) {}
  static Deadline after(Duration duration) {
    return Deadline(gradwire::after(SteadyClock().now(), duration));
  }

  Time at() const { return at_; }
  bool passed() const { return left() == Duration::zero(); }

  /// What is left of it; never negative.
  Duration left() const {
    const Time now = SteadyClock().now();
    return at_ <= now ? Duration::zero() : at_ - now;
  }

  /// The earlier of this and `duration` from now.
  Deadline or_after(Duration duration) const {
    return Deadline(std::min(at_, after(duration).at_));
  }

 private:
  Time at_;
};

/// For poll(2) and its like: rounded up, so that nobody wakes before the time and spins until it.
inline int milliseconds_of(Duration duration) {
  constexpr auto kMost = std::chrono::hours(24);
  const auto clamped = std::clamp<Duration>(duration, Duration::zero(), kMost);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(clamped).count());
}

}  // namespace gradwire
