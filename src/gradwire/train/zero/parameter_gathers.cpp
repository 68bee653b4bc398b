#include "gradwire/train/zero/parameter_gathers.h"

#include <algorithm>
#include <utility>

namespace gradwire {
namespace {

/// Missing parameters stall the computation at once, gradients only later: gathers have priority
/// over reductions, and earlier gathers over later ones.
constexpr int kFirstUrgency = 1 << 24;

}  // namespace

ParameterGathers::ParameterGathers(std::vector<FlatUnit>& units, UnitExchange& exchange,
                                   Options options)
    : units_(units),
      exchange_(exchange),
      options_(std::move(options)),
      states_(units.size(), State::here) {}

void ParameterGathers::expect(std::size_t unit) {
  const bool known = std::ranges::find(expected_, unit) != expected_.end();
  if (!known && states_[unit] != State::coming) expected_.push_back(unit);
}

void ParameterGathers::advance() {
  while (!expected_.empty() && options_.ready(expected_.front())) {
    const auto unit = expected_.front();
    expected_.pop_front();
    start(unit);
  }
}

void ParameterGathers::require(std::size_t unit) {
  const bool known = std::ranges::find(expected_, unit) != expected_.end();
  if (!known && states_[unit] == State::away) {
    // Misprediction: start the queued gathers, as other ranks may have started them already.
    start_expected();
    start(unit);
  }
  while (known) {
    const auto next = expected_.front();
    expected_.pop_front();
    start(next);
    if (next == unit) break;
  }
  advance();
  finish(unit);
  units_[unit].show();
}

void ParameterGathers::start_expected() {
  while (!expected_.empty()) {
    const auto unit = expected_.front();
    expected_.pop_front();
    start(unit);
  }
}

void ParameterGathers::start(std::size_t unit) {
  options_.make_ready(unit);
  if (states_[unit] != State::away) return;
  units_[unit].allocate();
  exchange_.start_gather(unit, units_[unit].shard(), units_[unit].flat(),
                         kFirstUrgency - started_++ % kFirstUrgency);
  states_[unit] = State::coming;
}

void ParameterGathers::finish(std::size_t unit) {
  if (states_[unit] != State::coming) return;
  const auto begin = options_.clock->now();
  exchange_.wait_gather(unit);
  exposed_ += options_.clock->now() - begin;
  states_[unit] = State::here;
}

void ParameterGathers::change(std::size_t unit) {
  finish(unit);
  states_[unit] = State::away;
}

void ParameterGathers::release(std::size_t unit) {
  if (!units_[unit].sharded()) return;
  finish(unit);
  units_[unit].release();
  states_[unit] = State::away;
}

}  // namespace gradwire
