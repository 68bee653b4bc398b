#include "gradwire/emulation/emulated_training.h"

#include <cmath>
#include <utility>

namespace gradwire::emulation {
namespace {

std::vector<std::vector<std::size_t>> blocks_of(const step::StepPlan& plan) {
  std::vector<std::vector<std::size_t>> blocks = plan.needs;
  for (auto& units : blocks) std::erase_if(units, [&](auto unit) { return plan.is_root[unit]; });
  return blocks;
}

/// Backward reaches the last layer of a unit first.
std::vector<std::vector<std::size_t>> begins_of(const step::StepPlan& plan) {
  std::vector<std::vector<std::size_t>> begins(plan.needs.size());
  std::vector<bool> seen(plan.buckets.size());
  for (std::size_t layer = plan.needs.size(); layer-- > 0;) {
    for (const std::size_t unit : plan.needs[layer]) {
      if (!seen[unit]) begins[layer].push_back(unit);
      seen[unit] = true;
    }
  }
  return begins;
}

}  // namespace

EmulatedTraining::EmulatedTraining(const workload::LayerProfile& profile,
                                   const step::StepPlan& plan,
                                   const EmulatedTrainingOptions& options, EmulatedUnits& units,
                                   exchange::Exchange& exchange, Alarm& alarm, TraceRecorder* trace)
    : profile_(profile),
      plan_(plan),
      options_(options),
      units_(units),
      trace_(trace),
      device_(alarm),
      exchange_(exchange, device_),
      engine_(step_units(plan), options.policy, exchange_, units, alarm),
      blocks_(blocks_of(plan)),
      positions_(profile.layers.size()),
      begins_(begins_of(plan)) {
  if (options.local_steps)
    local_engine_.emplace(*options.local_steps, plan.fragment_of, exchange_, units, alarm);
}

void EmulatedTraining::step() {
  const TraceStep traced(trace_, steps_);
  for (int pass = 1; pass <= options_.accumulate; ++pass) {
    if (options_.pace) pace_ = options_.pace();
    forward();
    backward(pass == options_.accumulate);
  }
  if (options_.update > Duration::zero()) device_.compute(options_.update);
  ++steps_;
  if (local()) local_engine_->step_done();
}

void EmulatedTraining::forward() {
  const TraceScope traced(trace_, TraceKind::forward);
  if (!local()) engine_.begin_forward(/*training=*/true);
  for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
    if (!local()) {
      engine_.before_block(blocks_[layer]);
      for (const std::size_t unit : plan_.needs[layer]) units_.use_parameters(unit, layer, steps_);
    }
    compute(profile_.layers[layer].forward);
    positions_[layer] = engine_.position();
    if (!local()) engine_.after_block(blocks_[layer]);
  }
  if (!local()) engine_.end_forward();
}

/// Replicated gradients, and those of stage 1, accumulate locally until the last pass.
void EmulatedTraining::backward(bool last_pass) {
  const TraceScope traced(trace_, TraceKind::backward);
  const bool reduces = !local() && (last_pass || options_.policy.stage >= 2);
  const bool steps_in_backward = options_.policy.stage > 0;
  if (reduces) engine_.begin_pass();
  if (last_pass && reduces && steps_in_backward) engine_.begin_step();
  for (std::size_t layer = profile_.layers.size(); layer-- > 0;) {
    if (reduces) begin_layer_backward(layer);
    compute(profile_.layers[layer].backward);
    complete_layer_backward(layer, reduces);
  }
  if (reduces) engine_.end_pass();
  if (last_pass && reduces && !steps_in_backward) engine_.begin_step();
}

void EmulatedTraining::begin_layer_backward(std::size_t layer) {
  engine_.before_backward(blocks_[layer], positions_[layer]);
  for (const std::size_t unit : plan_.needs[layer]) {
    if (options_.policy.stage == 3) units_.use_parameters(unit, layer, steps_);
  }
  for (const std::size_t unit : begins_[layer]) {
    engine_.before_gradient(unit);
    units_.make_gradients(unit);
  }
}

void EmulatedTraining::complete_layer_backward(std::size_t layer, bool reduces) {
  for (const std::size_t unit : plan_.needs[layer]) {
    if (reduces) engine_.gradient_ready(unit);
    if (local() && plan_.first_layer[unit] == layer) units_.step(unit);
  }
}

void EmulatedTraining::compute(double share) {
  const auto whole = static_cast<double>(options_.compute.count());
  const Duration duration(std::llround(share * whole * pace_));
  if (options_.policy.stage == 0) return device_.compute(duration);
  device_.compute(duration, [this] {
    engine_.poll();
    return engine_.is_polling();
  });
}

void EmulatedTraining::finish() {
  if (local()) return local_engine_->settle();
  engine_.finish();
}

}  // namespace gradwire::emulation
