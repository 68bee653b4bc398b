#include "gradwire/train/zero/parameter_gathers.h"

#include <algorithm>
#include <utility>

namespace gradwire {
namespace {

/// Missing parameters stall the computation at once, gradients only later: gathers have priority
/// over reductions, and earlier gathers over later ones.
constexpr int kFirstPriority = 1 << 24;

}  // namespace

ParameterGathers::ParameterGathers(std::vector<FlatUnit>& units, UnitExchange& exchange,
                                   Options options)
    : units_(units),
      exchange_(exchange),
      options_(std::move(options)),
      states_(units.size(), State::resident) {}

void ParameterGathers::prefetch(std::size_t unit) {
  const bool queued = std::ranges::find(queue_, unit) != queue_.end();
  if (!queued && states_[unit] != State::gathering) queue_.push_back(unit);
}

void ParameterGathers::advance() {
  while (!queue_.empty() && options_.ready(queue_.front())) {
    const auto unit = queue_.front();
    queue_.pop_front();
    start(unit);
  }
}

void ParameterGathers::await(std::size_t unit) {
  const bool queued = std::ranges::find(queue_, unit) != queue_.end();
  if (!queued && states_[unit] == State::absent) {
    // Misprediction: start the queued gathers, as other ranks may have started them already.
    start_queued();
    start(unit);
  }
  while (queued) {
    const auto next = queue_.front();
    queue_.pop_front();
    start(next);
    if (next == unit) break;
  }
  advance();
  finish(unit);
  units_[unit].unpoison();
}

void ParameterGathers::start_queued() {
  while (!queue_.empty()) {
    const auto unit = queue_.front();
    queue_.pop_front();
    start(unit);
  }
}

void ParameterGathers::start(std::size_t unit) {
  options_.step_unit(unit);
  if (states_[unit] != State::absent) return;
  units_[unit].allocate();
  exchange_.start_gather(unit, units_[unit].shard(), units_[unit].flat(),
                         kFirstPriority - started_++ % kFirstPriority);
  states_[unit] = State::gathering;
}

void ParameterGathers::finish(std::size_t unit) {
  if (states_[unit] != State::gathering) return;
  const auto begin = options_.clock->now();
  exchange_.wait_gather(unit);
  exposed_ += options_.clock->now() - begin;
  states_[unit] = State::resident;
}

void ParameterGathers::invalidate(std::size_t unit) {
  finish(unit);
  states_[unit] = State::absent;
}

void ParameterGathers::release(std::size_t unit) {
  if (!units_[unit].sharded()) return;
  finish(unit);
  units_[unit].release();
  states_[unit] = State::absent;
}

}  // namespace gradwire
