#pragma once

#include <optional>

#include "gradwire/gradient/layer_profile.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/gradient/step_plan.h"
#include "gradwire/gradient/streaming_schedule.h"
#include "gradwire/plan/simulate/bucket_stages.h"

namespace gradwire {

/// How a step is made up: as `gradwire bench step` has it.
struct StepModel {
  double compute = 0;  ///< Seconds of one forward and backward pass.
  int accumulate = 1;  ///< Passes a step; only the last one's gradients leave.
  Overlap overlap = Overlap::full;
  /// With it parameters are averaged when it says so, in place of gradients; `overlap` then says
  /// nothing. The plan is one of plan_local_steps().
  std::optional<StreamingSchedule> local_steps = std::nullopt;
  /// Of the slowest host: seconds of compute count so many times more there. All wait for it.
  double slowest_host = 1;
  double update = 0;  ///< Seconds of the optimiser for all parameters.
};

/// Seconds of a step of the optimiser, the mean over steps when each is like the last.
struct SimulatedStep {
  double step = 0;
  double single = 0;  ///< Of a step without communication, on a host that is not slow.
  double forward = 0, backward = 0;
  double exposed = 0;    ///< Computing stood still on a host that is not slow.
  double under_way = 0;  ///< Something was on its way, or coded, hidden or not.
  double port = 0;       ///< How long the busiest port was busy.

  /// Of what the hosts could compute, the share that they did.
  double efficiency() const { return step > 0 ? single / step : 1; }
};

/// Training steps in virtual time, op by op as gradient/emulated_training.h: buckets leave in
/// backward when their last layer is done, the later the more urgent; with Overlap::full each layer
/// of the next forward waits for the buckets that hold its parameters. All hosts but the slowest
/// are alike, so that one stands for all; operations begin when the slowest takes part.
SimulatedStep simulate_step(const LayerProfile& profile, const StepPlan& plan,
                            const StepModel& model, const ExchangeModel& exchange);

}  // namespace gradwire
