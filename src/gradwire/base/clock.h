#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "gradwire/base/types.h"

namespace gradwire {

/// Source of time. A constructor argument of every component that needs the time, so that tests can
/// control it. Implementations must be callable from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  Time now() const override;
};

inline double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline Duration duration_of(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

/// Waits until the condition is notified, or until this time of the SteadyClock; also returns
/// without either, as all waits for conditions may.
void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, Time until);

/// Returns this host's wall-clock time since 1970-01-01 (UTC). For comparing the clocks of hosts,
/// not for measuring durations.
Duration time_of_day();

}  // namespace gradwire
