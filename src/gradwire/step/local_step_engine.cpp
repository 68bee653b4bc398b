#include "gradwire/step/local_step_engine.h"

#include <algorithm>
#include <utility>

namespace gradwire::step {

LocalStepEngine::LocalStepEngine(const StreamingSchedule& schedule,
                                 std::vector<std::size_t> fragment_of, exchange::Exchange& exchange,
                                 StepHost& host, const Clock& clock)
    : schedule_(schedule),
      fragment_of_(std::move(fragment_of)),
      host_(host),
      units_(fragment_of_.size()),
      // The units of a fragment are all needed at the same time.
      policy_{.prioritizes = false},
      reductions_(units_, policy_, exchange, host, clock) {
  position_.averaged_after.resize(schedule.fragments());
}

void LocalStepEngine::step_done() {
  ++position_.steps;
  if (const auto fragment = schedule_.begins_after(position_.steps)) {
    begin({*fragment});
    position_.pending = fragment;
  }
  const auto ending = schedule_.ends_after(position_.steps);
  if (ending && position_.pending == ending) apply_pending();
}

void LocalStepEngine::synchronize() {
  if (position_.pending) apply_pending();
  std::vector<std::size_t> changed;
  for (std::size_t fragment = 0; fragment < position_.averaged_after.size(); ++fragment) {
    if (position_.averaged_after[fragment] < position_.steps) changed.push_back(fragment);
  }
  if (changed.empty()) return;
  begin(changed);
  apply(changed);
}

void LocalStepEngine::begin(const std::vector<std::size_t>& fragments) {
  const std::vector<std::size_t> units = units_of(fragments);
  reductions_.begin_pass(units);
  for (const std::size_t unit : units) reductions_.complete(unit);
  reductions_.end_pass();
  for (const std::size_t fragment : fragments) position_.averaged_after[fragment] = position_.steps;
}

void LocalStepEngine::apply(const std::vector<std::size_t>& fragments) {
  reductions_.settle_all();
  reductions_.commit();
  for (const std::size_t unit : units_of(fragments)) host_.step(unit);
}

void LocalStepEngine::apply_pending() {
  apply({*std::exchange(position_.pending, std::nullopt)});
}

std::vector<std::size_t> LocalStepEngine::units_of(
    const std::vector<std::size_t>& fragments) const {
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < fragment_of_.size(); ++unit) {
    if (std::ranges::find(fragments, fragment_of_[unit]) != fragments.end()) units.push_back(unit);
  }
  return units;
}

}  // namespace gradwire::step
