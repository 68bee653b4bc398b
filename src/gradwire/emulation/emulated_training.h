#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "gradwire/emulation/emulated_device.h"
#include "gradwire/emulation/emulated_units.h"
#include "gradwire/emulation/stall_exchange.h"
#include "gradwire/step/local_step_engine.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/step_engine.h"
#include "gradwire/step/step_plan.h"
#include "gradwire/trace/trace.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire::emulation {

struct EmulatedTrainingOptions {
  Duration compute{};  ///< Duration of one forward and backward pass.
  /// Returns the factor on the compute of the next pass. Null: always 1.
  std::function<double()> pace;
  Duration update{};   ///< Optimizer's duration for all parameters; 0: only what the units take.
  int accumulate = 1;  ///< Passes per step; in stages 0 and 1 only the last sends gradients.
  step::StepPolicy policy;
  /// If set, gradients stay local and parameters are averaged on this schedule. The policy is not
  /// used, and the plan must be one of plan_local_steps().
  std::optional<step::StreamingSchedule> local_steps = std::nullopt;
};

/// Training steps with emulated compute: it drives the step engine as DataParallel, Zero and
/// LocalSgd do, layer by layer. Over a real exchange and the machine's clock it measures (`gradwire
/// bench step`), over a simulated exchange and virtual time it predicts (`gradwire plan simulate`).
/// With ZeRO the units step during backward, as soon as their means arrive
/// (StepEngine::begin_step), and the host polls for them while the device computes.
class EmulatedTraining {
 public:
  /// All but the options must outlive it. `trace` may be null.
  EmulatedTraining(const workload::LayerProfile& profile, const step::StepPlan& plan,
                   const EmulatedTrainingOptions& options, EmulatedUnits& units,
                   exchange::Exchange& exchange, Alarm& alarm, TraceRecorder* trace = nullptr);

  /// Runs one optimizer step. The next step waits for communication still in flight at its end.
  /// Throws what communication throws.
  void step();
  /// Blocks until nothing is in flight on any rank.
  void finish();

  const EmulatedDevice& device() const { return device_; }

 private:
  bool local() const { return local_engine_.has_value(); }
  void forward();
  void backward(bool last_pass);
  void begin_layer_backward(std::size_t layer);
  void complete_layer_backward(std::size_t layer, bool reduces);
  void compute(double share);

  const workload::LayerProfile& profile_;
  const step::StepPlan& plan_;
  EmulatedTrainingOptions options_;
  EmulatedUnits& units_;
  TraceRecorder* trace_;
  EmulatedDevice device_;
  StallExchange exchange_;
  step::StepEngine engine_;
  std::optional<step::LocalStepEngine> local_engine_;
  std::vector<std::vector<std::size_t>> blocks_;  ///< By layer: its units, without root units.
  std::vector<std::size_t> positions_;            ///< By layer: where it ended in forward.
  std::vector<std::vector<std::size_t>> begins_;  ///< By layer: units whose backward begins there.
  std::int64_t steps_ = 0;
  double pace_ = 1;  ///< Factor on the compute of this pass.
};

}  // namespace gradwire::emulation
