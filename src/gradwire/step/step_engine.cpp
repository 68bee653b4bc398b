#include "gradwire/step/step_engine.h"

#include <algorithm>
#include <utility>

namespace gradwire::step {

StepEngine::StepEngine(std::vector<StepUnit> units, const StepPolicy& policy,
                       exchange::Exchange& exchange, StepHost& host, const Clock& clock)
    : units_(std::move(units)),
      policy_(policy),
      host_(host),
      reductions_(units_, policy_, exchange, host, clock),
      gathers_(policy_, units_.size(), exchange, host, clock,
               {.ready = [this](std::size_t unit) { return !must_step(unit) || can_step(unit); },
                .update = [this](std::size_t unit) { step_unit(unit); }}),
      due_(units_.size()),
      complete_(units_.size()) {
  release_all();
}

void StepEngine::begin_forward(bool training) {
  training_ = training;
  in_forward_ = true;
  forward_order_.clear();
  if (training && consolidated_) release_all();
  if (!policy_.shards_parameters()) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].is_root) gathers_.prefetch(unit);
  }
  prefetch_after(0);
  await_roots();
}

void StepEngine::await_roots() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].is_root) gathers_.await(unit);
  }
}

void StepEngine::prefetch_after(std::size_t position) {
  std::size_t elements = 0;
  for (std::size_t next = position; next < previous_order_.size(); ++next) {
    const std::size_t unit = previous_order_[next];
    elements += units_[unit].elements;
    if (policy_.exceeds_prefetch(next - position + 1, elements)) break;
    gathers_.prefetch(unit);
  }
}

void StepEngine::before_block(const std::vector<std::size_t>& units) {
  if (policy_.shards_parameters() && in_forward_) {
    gather_for_forward(units);
  } else {
    for (const std::size_t unit : units) await(unit);
  }
}

void StepEngine::gather_for_forward(const std::vector<std::size_t>& units) {
  for (const std::size_t unit : units) {
    gathers_.prefetch(unit);
    forward_order_.push_back(unit);
  }
  prefetch_after(forward_order_.size());
  for (const std::size_t unit : units) gathers_.await(unit);
}

void StepEngine::after_block(const std::vector<std::size_t>& units, bool keep) {
  if (!policy_.shards_parameters() || !in_forward_ || consolidated_) return;
  // Backward, if any, begins with the last block.
  const bool last = forward_order_.size() == previous_order_.size();
  if (training_ && (keep || last)) return;
  for (const std::size_t unit : units) {
    gathers_.await(unit);  // Queued again if the same block runs twice in a row.
    gathers_.release(unit);
  }
}

void StepEngine::end_forward() {
  in_forward_ = false;
  gathers_.start_queued();
  finish();
  previous_order_ = forward_order_;
  if (!training_ && !consolidated_) release_all();
}

void StepEngine::begin_pass() {
  if (policy_.shards_parameters()) {
    // A forward without gradients in between may have released them.
    await_roots();
  }
  complete_.assign(units_.size(), false);
  reductions_.begin_pass(reduction_order());
}

/// Returns the order of the last forward, reversed, where it is known.
std::vector<std::size_t> StepEngine::reduction_order() const {
  std::vector<std::size_t> order;
  const auto add = [&order](std::size_t unit) {
    if (std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  };
  for (auto unit = previous_order_.rbegin(); unit != previous_order_.rend(); ++unit) add(*unit);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!units_[unit].is_root) add(unit);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) add(unit);
  return order;
}

void StepEngine::before_backward(const std::vector<std::size_t>& units, std::size_t position) {
  for (const std::size_t unit : units) gathers_.prefetch(unit);
  prefetch_before(position, units);
  for (const std::size_t unit : units) gathers_.await(unit);
}

/// Prefetches the units that forward used before `position`, except those backward is done with.
void StepEngine::prefetch_before(std::size_t position, const std::vector<std::size_t>& own) {
  std::size_t elements = 0, ahead = 0;
  for (std::size_t next = position - std::min(position, own.size()); next-- > 0;) {
    const std::size_t unit = next < previous_order_.size() ? previous_order_[next] : own.front();
    if (complete_[unit]) continue;
    elements += units_[unit].elements;
    if (policy_.exceeds_prefetch(++ahead, elements)) break;
    gathers_.prefetch(unit);
  }
}

void StepEngine::gradient_ready(std::size_t unit) {
  if (!reductions_.gradient_ready(unit)) return;
  complete_unit(unit);
  if (policy_.overlap != Overlap::none) reductions_.launch_complete();
}

void StepEngine::complete_unit(std::size_t unit) {
  complete_[unit] = true;
  if (!policy_.shards_parameters() || units_[unit].is_root || consolidated_) return;
  gathers_.start_queued();
  gathers_.release(unit);
}

void StepEngine::end_pass() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (reductions_.complete(unit)) complete_unit(unit);
  }
  reductions_.end_pass();
  if (policy_.overlap != Overlap::full) reductions_.settle_all();
  if (policy_.shards_parameters()) release_all();
  if (stepping_) start_step();
}

bool StepEngine::is_pending() const {
  return !reductions_.in_flight().empty() || std::ranges::find(due_, true) != due_.end();
}

void StepEngine::finish_step() {
  if (stepping_) finish();
}

void StepEngine::begin_step() {
  finish_step();
  stepping_ = true;
  due_.assign(units_.size(), true);
  reductions_.commit();
  if (!reductions_.in_pass()) start_step();
}

void StepEngine::abandon_step() {
  finish_step();
  reductions_.abandon();
}

void StepEngine::start_step() {
  if (policy_.overlap != Overlap::full || policy_.ranks == 1) return finish();
  if (!policy_.gathers()) {
    if (reductions_.in_flight().empty()) finish();
    return;
  }
  if (policy_.optimizer_communicates) step_all();
  if (policy_.shards_parameters()) return;
  // Forward first needs the units that backward reached last.
  for (std::size_t unit = units_.size(); unit-- > 0;) gathers_.prefetch(unit);
  gathers_.advance();
}

/// A step that was announced before backward has reached the unit is not due yet.
bool StepEngine::must_step(std::size_t unit) const {
  return due_[unit] && !(reductions_.in_pass() && !reductions_.launched(unit));
}

/// Returns true if step_unit() would not block.
bool StepEngine::can_step(std::size_t unit) {
  return reductions_.launched(unit) && reductions_.arrived(unit);
}

void StepEngine::step_unit(std::size_t unit) {
  if (!must_step(unit)) return;
  reductions_.settle(unit);
  due_[unit] = false;
  if (policy_.gathers()) gathers_.finish(unit);
  if (host_.step(unit) && policy_.gathers()) gathers_.invalidate(unit);
}

void StepEngine::step_all() {
  for (std::size_t unit = units_.size(); unit-- > 0;) step_unit(unit);
}

void StepEngine::poll() {
  if (!stepping_ || policy_.optimizer_communicates) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!due_[unit] || !can_step(unit)) continue;
    step_unit(unit);
    if (policy_.gathers() && !policy_.shards_parameters() && gathers_.in_any_order())
      gathers_.start(unit);
  }
  gathers_.advance();
}

bool StepEngine::step_any_arrived() {
  for (std::size_t unit = units_.size(); unit-- > 0;) {
    if (!due_[unit] || !can_step(unit)) continue;
    step_unit(unit);
    return true;
  }
  return false;
}

void StepEngine::await(std::size_t unit) {
  if (policy_.gathers()) return gathers_.await(unit);
  // Steps the others meanwhile.
  while (!reductions_.arrived(unit) && step_any_arrived()) {
  }
  reductions_.settle(unit);
  step_unit(unit);
}

void StepEngine::finish() {
  const bool stepping = std::exchange(stepping_, false);
  if (policy_.shards_parameters()) {
    if (stepping) step_all();
    return;
  }
  if (policy_.gathers()) {
    if (stepping) {
      for (std::size_t unit = units_.size(); unit-- > 0;) gathers_.prefetch(unit);
    }
    gathers_.start_queued();
  }
  for (std::size_t unit = units_.size(); unit-- > 0;) await(unit);
}

void StepEngine::consolidate() {
  finish();
  if (!policy_.shards_parameters() || consolidated_) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_.prefetch(unit);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_.await(unit);
  consolidated_ = true;
}

void StepEngine::release_all() {
  consolidated_ = false;
  if (!policy_.shards_parameters()) return;
  gathers_.start_queued();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_.release(unit);
}

void StepEngine::invalidate_all() {
  if (consolidated_) release_all();
  if (!policy_.gathers()) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    gathers_.invalidate(unit);
    if (!policy_.shards_parameters()) gathers_.await(unit);
  }
}

StepStats StepEngine::stats() const {
  StepStats stats = reductions_.stats();
  stats.exposed += gathers_.exposed();
  return stats;
}

}  // namespace gradwire::step
