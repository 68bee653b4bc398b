#include "gradwire/recipe/slow_steps.h"

#include <chrono>

namespace gradwire::recipe {

void SlowSteps::wait() {
  waited_ = random_.unit() < worker_.share ? (worker_.factor - 1) * compute_ : 0;
  const std::chrono::duration<double> wait(waited_);
  alarm_.await(alarm_.now() + std::chrono::duration_cast<Duration>(wait));
}

}  // namespace gradwire::recipe
