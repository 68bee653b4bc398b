#pragma once

#include <optional>

#include "gradwire/plan/simulate/bucket_stages.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/step_host.h"
#include "gradwire/step/step_plan.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire::plan {

/// Composition of a step, as in `gradwire bench step`.
struct StepModel {
  double compute = 0;  ///< Seconds of one forward and backward pass.
  int accumulate = 1;  ///< Passes per step; only the last one's gradients leave.
  step::StepPolicy policy;
  /// If set, parameters are averaged by this schedule in place of gradients, and the policy is not
  /// used. The plan must be one of plan_local_steps().
  std::optional<step::StreamingSchedule> local_steps = std::nullopt;
  /// Compute time of the slowest host relative to the others, which wait for it.
  double slowest_host = 1;
  double update = 0;  ///< Seconds of the optimizer for all parameters.
};

/// Seconds per optimizer step, the mean over steps in steady state.
struct SimulatedStep {
  double step = 0;
  double single = 0;  ///< A step without communication, on a host that is not slow.
  double forward = 0, backward = 0;
  double exposed = 0;    ///< Computing waits, on a host that is not slow.
  double in_flight = 0;  ///< Communication in flight or being coded, hidden or not.
  double port = 0;       ///< Busy time of the most loaded port.

  /// Share of the hosts' compute capacity that is used.
  double efficiency() const { return step > 0 ? single / step : 1; }
};

/// Simulates training steps: the step engine that training runs, in virtual time. All hosts but the
/// slowest are alike, so one represents all; operations begin when the slowest host takes part.
/// `traffic`: of each unit of the plan.
SimulatedStep simulate_step(const workload::LayerProfile& profile, const step::StepPlan& plan,
                            const StepModel& model, const std::vector<UnitTraffic>& traffic);

/// The same with the traffic that the exchange model predicts, among its ranks.
SimulatedStep simulate_step(const workload::LayerProfile& profile, const step::StepPlan& plan,
                            StepModel model, const ExchangeModel& exchange);

}  // namespace gradwire::plan
