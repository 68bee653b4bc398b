#include "gradwire/step/gathers.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/priorities.h"

namespace gradwire::step {

Gathers::Gathers(const StepPolicy& policy, std::size_t units, exchange::Exchange& exchange,
                 StepHost& host, const Clock& clock, Shards shards)
    : policy_(policy),
      exchange_(exchange),
      host_(host),
      clock_(clock),
      shards_(std::move(shards)),
      order_(exchange.traits().order),
      states_(units, State::resident),
      works_(units) {}

bool Gathers::is_queued(std::size_t unit) const {
  return std::ranges::find(queue_, unit) != queue_.end();
}

void Gathers::prefetch(std::size_t unit) {
  if (!is_queued(unit) && states_[unit] != State::gathering) queue_.push_back(unit);
}

/// Where all operations of the group have one order, the start of one must not depend on the
/// completion of another: ranks would start different operations.
bool Gathers::ready(std::size_t unit) const {
  return order_ == exchange::OperationOrder::all || shards_.ready(unit);
}

void Gathers::advance() {
  if (!in_any_order()) {
    while (!queue_.empty() && ready(queue_.front())) start_next();
    return;
  }
  const std::vector<std::size_t> queued(queue_.begin(), queue_.end());
  for (const std::size_t unit : queued) {
    if (ready(unit) && unqueue(unit)) start(unit);
  }
}

bool Gathers::unqueue(std::size_t unit) {
  return std::erase(queue_, unit) > 0;
}

void Gathers::await(std::size_t unit) {
  const bool queued = is_queued(unit);
  if (queued && !in_any_order()) {
    while (start_next() != unit) {
    }
  } else if (queued || states_[unit] == State::absent) {
    unqueue(unit);
    // A wrong prediction: other ranks may have started the queued gathers already.
    if (!in_any_order()) start_queued();
    start(unit);
  }
  advance();
  finish(unit);
  host_.available(unit);
}

std::size_t Gathers::start_next() {
  const std::size_t unit = queue_.front();
  queue_.pop_front();
  start(unit);
  return unit;
}

void Gathers::start_queued() {
  while (!queue_.empty()) start_next();
}

void Gathers::start(std::size_t unit) {
  shards_.update(unit);
  if (states_[unit] != State::absent) return;
  StepHost::Parameters parameters = host_.parameters(unit);
  works_[unit] = exchange_.all_gather(unit, std::move(parameters.shard),
                                      std::move(parameters.whole), priority_of(unit));
  states_[unit] = State::gathering;
}

int Gathers::priority_of(std::size_t unit) {
  if (policy_.shards_parameters()) return gather_for_block_priority(started_++);
  return policy_.prioritizes ? gather_after_step_priority(unit) : 1;
}

void Gathers::finish(std::size_t unit) {
  if (states_[unit] != State::gathering) return;
  const Work work = std::exchange(works_[unit], {});
  const Time begin = clock_.now();
  work.wait();
  exposed_ += clock_.now() - begin;
  states_[unit] = State::resident;
}

void Gathers::release(std::size_t unit) {
  finish(unit);
  host_.release(unit);
  states_[unit] = State::absent;
}

}  // namespace gradwire::step
