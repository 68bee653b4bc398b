#include "gradwire/plan/run_cost.h"

#include <cmath>

namespace gradwire {

RunCost run_cost(const PlanInput& input, const StepTime& time, const Prices& prices) {
  RunCost cost;
  if (prices.samples <= 0) return cost;
  const Strategy& s = input.strategy;
  const double watts = prices.watts > 0 ? prices.watts : input.device.watts;
  cost.steps = std::ceil(prices.epochs * prices.samples / s.global_batch());
  cost.hours = cost.steps * time.step / 3600;
  cost.rent = cost.hours * (s.nodes + s.servers) * prices.per_node_hour;
  cost.kwh = cost.hours * s.devices() * watts / 1000;
  cost.energy = cost.kwh * prices.per_kwh;
  return cost;
}

}  // namespace gradwire
