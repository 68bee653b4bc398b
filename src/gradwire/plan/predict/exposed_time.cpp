#include "gradwire/plan/predict/exposed_time.h"

#include <algorithm>

#include "gradwire/plan/simulate/step_simulation.h"

namespace gradwire::plan {
namespace {

/// The maximum, so that the time is computed quickly. ResNet-50 has half as many of 4 MiB.
constexpr std::size_t kMaxBuckets = 48;

/// The engine's optimizer step of a replicated unit is not exchanged, so one more rank changes
/// nothing.
constexpr int kSomeRanks = 2;

/// Returns the model's layers with their shares of the input's pass.
workload::LayerProfile scaled_profile(const ModelShape& model, const OverlapInput& input) {
  workload::LayerProfile profile = profile_of(model);
  double forward = 0, backward = 0;
  for (const workload::ProfileLayer& layer : profile.layers) {
    forward += layer.forward;
    backward += layer.backward;
  }
  const double pass = input.forward + input.backward;
  for (workload::ProfileLayer& layer : profile.layers) {
    if (forward > 0) layer.forward *= input.forward / pass / forward;
    if (backward > 0) layer.backward *= input.backward / pass / backward;
  }
  return profile;
}

step::StepPlan plan_of(const workload::LayerProfile& profile, int stage) {
  const std::size_t bytes = profile.parameters() * sizeof(float);
  const std::size_t max_bytes = std::max<std::size_t>(bytes / kMaxBuckets, 1);
  const auto min_bytes = static_cast<std::size_t>(kSmallestUnit * static_cast<double>(bytes));
  const step::StepPlanOptions options{
      .limits = {.first_bytes = max_bytes, .bytes = max_bytes, .last_bytes = min_bytes}};
  return stage == 3 ? step::plan_blocks(profile, max_bytes / sizeof(float) / 2, options)
                    : step::plan_step(profile, options);
}

std::vector<std::vector<TrafficStage>> jobs_of(const WholeExchange& whole, double share) {
  const double seconds = share * whole.bandwidth;
  return {{{TrafficStage::network, seconds, seconds},
           {TrafficStage::network, whole.latency_of(share), 0}}};
}

/// Everything is exposed where nothing overlaps.
double total_of(const OverlapInput& input) {
  const int passes = input.policy.stage >= 2 ? input.accumulate : 1;
  const int gathers = input.policy.stage == 0   ? 0
                      : input.policy.stage == 3 ? 2 * input.accumulate
                                                : 1;
  return passes * input.reduce.total() + gathers * input.gather.total();
}

}  // namespace

double exposed_time(const ModelShape& model, const OverlapInput& input) {
  const double total = total_of(input);
  if (total <= 0) return 0;
  if (input.policy.overlap == step::Overlap::none || input.forward + input.backward <= 0)
    return total;
  const workload::LayerProfile profile = scaled_profile(model, input);
  const step::StepPlan plan = plan_of(profile, input.policy.stage);
  StepModel step{.compute = input.forward + input.backward,
                 .accumulate = input.accumulate,
                 .policy = input.policy};
  step.policy.ranks = kSomeRanks;
  const auto all = static_cast<double>(plan.elements());
  std::vector<UnitTraffic> traffic;
  for (const exchange::UnitShape& unit : plan.buckets) {
    const double share = static_cast<double>(unit.count) / all;
    traffic.push_back({jobs_of(input.reduce, share), jobs_of(input.gather, share)});
  }
  return std::min(simulate_step(profile, plan, step, traffic).exposed, total);
}

}  // namespace gradwire::plan
