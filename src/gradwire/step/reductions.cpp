#include "gradwire/step/reductions.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/priorities.h"

namespace gradwire::step {

Reductions::Reductions(const std::vector<StepUnit>& units, const StepPolicy& policy,
                       exchange::Exchange& exchange, StepHost& host, const Clock& clock)
    : units_(units),
      policy_(policy),
      exchange_(exchange),
      host_(host),
      clock_(clock),
      missing_(units.size()),
      has_room_(units.size()),
      launched_(units.size()),
      works_(units.size()) {}

void Reductions::begin_pass(std::vector<std::size_t> order) {
  if (exchange_.traits().has_state) settle_all();
  order_ = std::move(order);
  next_ = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) missing_[unit] = units_[unit].gradients;
  has_room_.assign(units_.size(), false);
  launched_.assign(units_.size(), false);
  in_pass_ = true;
}

void Reductions::make_room(std::size_t unit) {
  if (has_room_[unit]) return;
  has_room_[unit] = true;
  settle(unit);
  if (policy_.stage < 2) return;
  const std::vector<std::size_t> in_flight = in_flight_;
  for (const std::size_t other : in_flight) {
    if (arrived(other)) settle(other);
  }
  while (in_flight_.size() >= policy_.max_reductions) settle(next_to_arrive());
}

/// Returns the unit of highest priority, or the oldest one where priorities have no effect.
std::size_t Reductions::next_to_arrive() const {
  const bool in_order = exchange_.traits().order == exchange::OperationOrder::all;
  return in_order ? in_flight_.front() : in_flight_.back();
}

bool Reductions::complete(std::size_t unit) {
  return std::exchange(missing_[unit], 0) > 0;
}

bool Reductions::is_complete() const {
  return std::ranges::all_of(missing_, [](std::size_t missing) { return missing == 0; });
}

void Reductions::launch_complete() {
  while (next_ < order_.size() && missing_[order_[next_]] == 0) launch(order_[next_++]);
}

void Reductions::launch(std::size_t unit) {
  make_room(unit);
  StepHost::Gradients gradients = host_.gradients(unit);
  stats_.bytes += static_cast<std::int64_t>(gradients.whole.count * size_of(gradients.whole.type));
  ++stats_.operations;
  const int priority = policy_.prioritizes ? reduction_priority(next_ - 1) : 0;
  works_[unit] = policy_.stage == 0
                     ? exchange_.all_reduce(unit, std::move(gradients.whole), priority)
                     : exchange_.reduce_scatter(unit, std::move(gradients.whole),
                                                std::move(gradients.shard), priority);
  in_flight_.push_back(unit);
  launched_[unit] = true;
}

void Reductions::end_pass() {
  launch_complete();
  in_pass_ = false;
  pass_ends_ = true;
  ++stats_.synchronized;
  report_end();
}

void Reductions::report_end() {
  if (!in_flight_.empty()) return;
  if (std::exchange(pass_ends_, false)) exchange_.end_pass();
  if (in_pass_ || !std::exchange(commits_, false)) return;
  exchange_.end_step(exchange::StepOutcome::committed);
}

void Reductions::commit() {
  commits_ = true;
  report_end();
}

void Reductions::abandon() {
  settle_all();
  exchange_.end_step(exchange::StepOutcome::abandoned);
}

void Reductions::settle(std::size_t unit) {
  if (!works_[unit].valid()) return;
  std::erase(in_flight_, unit);
  const Work work = std::exchange(works_[unit], {});
  const Time begin = clock_.now();
  work.wait();
  stats_.exposed += clock_.now() - begin;
  host_.reduced(unit);
  report_end();
}

void Reductions::settle_all() {
  while (!in_flight_.empty()) settle(in_flight_.front());
}

}  // namespace gradwire::step
