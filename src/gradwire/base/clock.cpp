#include "gradwire/base/clock.h"

namespace gradwire {

Time SteadyClock::now() const {
  return std::chrono::steady_clock::now();
}

void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                Time until) {
  condition.wait_until(lock, until);
}

Duration time_of_day() {
  return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace gradwire
