#include "gradwire/emulation/emulated_device.h"

#include <cerrno>
#include <ctime>

namespace gradwire::emulation {

void SteadyAlarm::await(Time time) {
  // std::chrono::steady_clock is CLOCK_MONOTONIC.
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t at = time.time_since_epoch().count();
  const timespec until{.tv_sec = at / kSecond, .tv_nsec = at % kSecond};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void EmulatedDevice::compute(Duration duration, const std::function<bool()>& poll) {
  constexpr Duration kPollInterval = std::chrono::milliseconds(1);
  free_at_ += duration;
  while (alarm_.now() + kPollInterval < free_at_ && poll())
    alarm_.await(alarm_.now() + kPollInterval);
  alarm_.await(free_at_);
}

}  // namespace gradwire::emulation
