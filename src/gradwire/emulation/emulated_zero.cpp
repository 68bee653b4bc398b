#include "gradwire/emulation/emulated_zero.h"

namespace gradwire {

EmulatedZero::EmulatedZero(const LayerProfile& profile, const ZeroUnits& units,
                           const EmulatedZeroOptions& options, ShardExchange& exchange,
                           Alarm& alarm, TraceRecorder* trace)
    : profile_(profile),
      units_(units),
      options_(options),
      exchange_(exchange),
      trace_(trace),
      device_(alarm),
      visits_{units.layers()},
      gradients_(units, exchange, options.stage == 1),
      parameters_(options.stage == 3 ? gathered_parameters(units, exchange, options.prefetch)
                                     : replicated_parameters(units, exchange)),
      reduced_at_(units.size()) {}

void EmulatedZero::step() {
  const TraceStep traced(trace_, visits_.step_of(visit_));
  const std::size_t layers = profile_.layers.size();
  {
    const TraceScope scope(trace_, TraceKind::forward);
    for (std::size_t layer = 0; layer < layers; ++layer) forward(layer);
  }
  exchange_.end_pass();  // Forward has waited for what the last backward reduced.
  const TraceScope scope(trace_, TraceKind::backward);
  for (std::size_t layer = layers; layer-- > 0;) backward(layer);
}

void EmulatedZero::forward(std::size_t layer) {
  bool waited = false;
  for (const std::size_t unit : units_.of_layer[layer]) waited |= step_unit(unit);
  if (waited) device_.resume();
  use_parameters();
  compute(profile_.layers[layer].forward);
  parameters_->leave(visit_++);
}

void EmulatedZero::backward(std::size_t layer) {
  use_parameters();
  if (make_gradients(layer)) device_.resume();
  compute(profile_.layers[layer].backward);
  parameters_->leave(visit_);
  reduce_gradients(layer);
  ++visit_;
}

void EmulatedZero::use_parameters() {
  step_arrived_units();
  if (parameters_->use(visit_)) device_.resume();
}

/// Allocates the gradients that this layer is the first to contribute to. Returns true if it had to
/// wait.
bool EmulatedZero::make_gradients(std::size_t layer) {
  bool waited = false;
  for (const std::size_t unit : units_.of_layer[layer]) {
    if (units_.last_layer[unit] != layer) continue;
    // The newest has the highest priority, and so finishes next.
    while (options_.stage > 1 && gradients_.units_in_flight().size() >= options_.reductions)
      waited |= step_unit(gradients_.units_in_flight().back());
    gradients_.make(unit);
  }
  return waited;
}

void EmulatedZero::reduce_gradients(std::size_t layer) {
  for (const std::size_t unit : units_.of_layer[layer]) {
    if (units_.first_layer[unit] != layer) continue;
    reduced_at_[unit] = visit_;
    gradients_.reduce(unit, priority_of(visits_.forward_after(visit_, layer)));
  }
}

void EmulatedZero::step_arrived_units() {
  const std::vector<std::size_t> in_flight = gradients_.units_in_flight();
  for (const std::size_t unit : in_flight) {
    if (gradients_.reduced(unit)) step_unit(unit);
  }
}

/// Steps the optimizer on a unit. Returns true if it had to wait for the gradient.
bool EmulatedZero::step_unit(std::size_t unit) {
  if (!gradients_.in_flight(unit)) return false;
  const bool waits = !gradients_.reduced(unit);
  const TraceScope scope(trace_, TraceKind::optimizer);
  read_ += gradients_.take_part(unit);
  parameters_->stepped(unit, reduced_at_[unit]);
  return waits;
}

void EmulatedZero::compute(double share) {
  const auto whole = static_cast<double>(options_.compute.count());
  device_.compute(Duration(static_cast<Duration::rep>(share * whole)), [this] {
    step_arrived_units();
    return !gradients_.units_in_flight().empty();
  });
}

void EmulatedZero::finish() {
  while (!gradients_.units_in_flight().empty()) step_unit(gradients_.units_in_flight().back());
  parameters_->finish(visit_);
}

}  // namespace gradwire
