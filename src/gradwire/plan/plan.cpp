#include "gradwire/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <ranges>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/units.h"

namespace gradwire::plan {
namespace {

/// Returns the input with the least memory use that keeps nodes and degrees.
PlanInput frugal(PlanInput input, int stage) {
  Strategy& s = input.strategy;
  s.batch = std::min(s.batch, 1.0);
  s.recompute = true;
  s.codec = "none";
  s.zero_stage = s.servers > 0 ? 0 : stage;
  return input;
}

bool can_fit(const PlanInput& input) {
  return fits(frugal(input, 0)) || fits(frugal(input, 3));
}

/// Binary search: more nodes never need more of a device's memory.
int min_nodes(const PlanInput& input, int stage) {
  PlanInput one = frugal(input, stage);
  const int replica = one.strategy.tensor * one.strategy.pipeline;
  const int unit = replica / std::gcd(replica, one.strategy.devices_per_node);
  const auto fits_on = [&](int units) {
    one.strategy.nodes = units * unit;
    return fits(one);
  };
  const auto all = std::views::iota(1, kMaxNodes / unit + 1);
  const auto first = std::ranges::partition_point(all, std::not_fn(fits_on));
  return first == all.end() ? 0 : *first * unit;
}

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string of_gradients(const Plan& plan, const char* what) {
  const StepTime& t = plan.time;
  return fmt::format(
      "{}: {} of the {} of gradient communication are exposed, {:.0f} % of the step.", what,
      format_duration(duration_of(t.exposed)), format_duration(duration_of(t.t_c)),
      percent(t.exposed, t.step));
}

}  // namespace

RunCost run_cost(const PlanInput& input, const StepTime& time, const Prices& prices) {
  RunCost cost;
  if (prices.samples <= 0) return cost;
  const Strategy& s = input.strategy;
  const double watts = prices.watts > 0 ? prices.watts : input.device.watts;
  cost.steps = std::ceil(prices.epochs * prices.samples / s.global_batch());
  cost.hours = cost.steps * time.step / 3600;
  cost.rent = cost.hours * s.machines() * prices.per_node_hour;
  cost.kwh = cost.hours * s.devices() * watts / 1000;
  cost.energy = cost.kwh * prices.per_kwh;
  return cost;
}

Plan make_plan(const PlanInput& input, const Prices& prices) {
  check_strategy(input.strategy);
  Plan plan{.input = input,
            .time = step_time(input),
            .memory = memory_use(input),
            .advice = advise(input),
            .ways = compare_ways(input)};
  plan.fits = fits(input);
  plan.can_fit = plan.fits || can_fit(input);
  for (int stage = 0; stage <= 3 && !plan.fits; ++stage)
    plan.min_nodes[static_cast<std::size_t>(stage)] = min_nodes(input, stage);
  plan.cost = run_cost(input, plan.time, prices);
  return plan;
}

double batch_that_fits(PlanInput input, double wanted) {
  double& batch = input.strategy.batch;
  for (batch = wanted; batch > 1; batch = std::max(1.0, batch / 2)) {
    if (fits(input)) break;
  }
  return batch;
}

std::string bottleneck_sentence(const Plan& plan) {
  const StepTime& t = plan.time;
  switch (t.bottleneck) {
    case PlanBottleneck::bandwidth:
      return of_gradients(plan, "Bandwidth") +
             fmt::format(" At {} a node, a step's computation would hide all of it.",
                         format_rate(needed_network(plan.input)));
    case PlanBottleneck::latency:
      return of_gradients(plan, "Latency") +
             " Hops take the time: use fewer hops, or larger "
             "steps.";
    case PlanBottleneck::storage:
      return fmt::format(
          "Storage: it takes {} to read a step's samples, and the rest of the step "
          "only {}.",
          format_duration(duration_of(t.phases.storage)),
          format_duration(duration_of(t.step - t.waiting_for_data)));
    case PlanBottleneck::update:
      return fmt::format(
          "The update: the optimizer takes {:.0f} % of the step; a larger batch "
          "needs it less often.",
          percent(t.phases.update, t.step));
    case PlanBottleneck::pipeline:
      return fmt::format(
          "The pipeline: bubbles and transfers of activations take {:.0f} % of the "
          "step; more micro-batches shorten them.",
          percent(t.phases.bubble + t.phases.unequal + t.phases.inside, t.step));
    case PlanBottleneck::compute:
      break;
  }
  return fmt::format(
      "Computation, {:.1f} % of the step: only faster devices, or more of them, "
      "shorten it.",
      percent(t.t_s, t.step));
}

std::string min_nodes_sentence(const Plan& plan) {
  if (plan.min_nodes[3] == 0)
    return "More nodes do not make it fit: --tensor, --pipeline, or devices with more memory.";
  if (plan.min_nodes[0] > 0) return "Batch 1 and recomputed activations make it fit.";
  std::string text = "It fits with";
  for (int stage = 3; stage > 0; --stage) {
    const int nodes = plan.min_nodes[static_cast<std::size_t>(stage)];
    if (nodes == 0) break;
    text += fmt::format("{} ZeRO stage {} on {} or more nodes", stage < 3 ? "," : "", stage, nodes);
  }
  return text + " (batch 1, recomputed activations).";
}

std::string memory_sentence(const Plan& plan) {
  constexpr double giga = 1e9;
  const MemoryUse& m = plan.memory;
  return fmt::format(
      "{} needs {:.3g} GB of {}'s {:.3g} GB on each device: parameters {:.3g}, gradients {:.3g}, "
      "optimizer {:.3g}, activations {}, buffers {:.3g}",
      plan.input.model.name, m.total() / giga, plan.input.device.name,
      plan.input.device.memory_bytes / giga, m.parameters / giga, m.gradients / giga,
      m.optimizer / giga,
      m.activations_known ? fmt::format("{:.3g}", m.activations / giga) : "unknown",
      m.buffers / giga);
}

}  // namespace gradwire::plan
