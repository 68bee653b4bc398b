#include "gradwire/base/clock.h"

namespace gradwire {

Time SteadyClock::now() const {
  return std::chrono::steady_clock::now();
}

}  // namespace gradwire
