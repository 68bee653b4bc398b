#include "gradwire/base/clock.h"

namespace gradwire {

Time SteadyClock::now() const {
  return std::chrono::steady_clock::now();
}

Duration time_of_day() {
  return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace gradwire
