#pragma once

#include <chrono>
#include <cstdint>

#include "gradwire/base/random.h"
#include "gradwire/base/types.h"
#include "gradwire/emulation/emulated_device.h"
#include "gradwire/emulation/pass_times.h"

namespace gradwire::recipe {

/// Makes this rank as slow as a slower machine, for experiments: it waits in a step, so that the
/// step takes `factor` times as long as its compute. It takes no processor time from ranks on the
/// same machine.
class SlowSteps {
 public:
  /// `alarm` must outlive this.
  SlowSteps(emulation::SlowWorker worker, std::uint64_t seed, emulation::Alarm& alarm)
      : worker_(worker), random_(seed), alarm_(alarm) {}

  /// Waits. Call before the compute of a step, of which this counts as a part.
  void wait() {
    waited_ = random_.unit() < worker_.share ? (worker_.factor - 1) * compute_ : 0;
    const std::chrono::duration<double> wait(waited_);
    alarm_.await(alarm_.now() + std::chrono::duration_cast<Duration>(wait));
  }
  /// Call after the step. `compute`: seconds of its compute, with those of wait().
  void end(double compute) { compute_ = compute - waited_; }

 private:
  emulation::SlowWorker worker_;
  Random random_;
  emulation::Alarm& alarm_;
  double compute_ = 0, waited_ = 0;  ///< Seconds of the last step.
};

}  // namespace gradwire::recipe
