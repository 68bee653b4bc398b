#include "tests/support/ideal_exchange.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

namespace gradwire::step {

class IdealExchange::IdealWork final : public WorkState {
 public:
  IdealWork(IdealExchange& exchange, Key key) : exchange_(exchange), key_(key) {}
  bool done() override { return exchange_.done(key_); }
  void wait() override { exchange_.wait(key_); }
  void on_done(std::function<void(const Work&)>) override {}

 private:
  IdealExchange& exchange_;
  Key key_;
};

Work IdealExchange::start(Key key, std::size_t count, int priority, InFlight operation) {
  advance();
  EXPECT_FALSE(in_flight_.contains(key)) << key.first << key.second << " twice";
  const double share = static_cast<double>(ranks_ - 1) / ranks_ * (key.first == 'a' ? 2 : 1);
  const double bytes = static_cast<double>(count * sizeof(float)) * share;
  operation.left = bytes / rate_;
  operation.priority = priority;
  in_flight_[key] = operation;
  started.push_back({key.first, key.second, alarm_.now()});
  sent += bytes;
  return Work(std::make_shared<IdealWork>(*this, key));
}

Work IdealExchange::all_reduce(std::size_t unit, LentSpan data, int priority) {
  return start({'a', unit}, data.count, priority, {});
}

Work IdealExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan, int priority) {
  return start({'r', unit}, data.count, priority, {});
}

Work IdealExchange::all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) {
  InFlight operation;
  if (data.data != nullptr) {
    operation.gathered = std::span(static_cast<float*>(data.data), data.count);
    operation.value = *static_cast<const float*>(shard.data);
  }
  return start({'g', unit}, data.count, priority, operation);
}

void IdealExchange::end_pass() {
  for (const auto& [key, operation] : in_flight_)
    EXPECT_EQ(key.first, 'g') << "not all reductions have been waited for";
  ++passes;
}

void IdealExchange::end_step(exchange::StepOutcome outcome) {
  steps.emplace_back(outcome, passes);
}

bool IdealExchange::done(Key key) {
  advance();
  return in_flight_.at(key).left <= 0 || is_forgotten(key);
}

void IdealExchange::wait(Key key) {
  while (!done(key)) {
    const InFlight& next = in_flight_.at(*highest_priority());
    alarm_.await(alarm_.now() +
                 std::chrono::ceil<Duration>(std::chrono::duration<double>(next.left)));
  }
  const InFlight& operation = in_flight_.at(key);
  if (!is_forgotten(key)) std::ranges::fill(operation.gathered, operation.value);
  in_flight_.erase(key);
}

std::optional<IdealExchange::Key> IdealExchange::highest_priority() const {
  std::optional<Key> best;
  for (const auto& [key, operation] : in_flight_) {
    if (operation.left > 0 && (!best || operation.priority > in_flight_.at(*best).priority))
      best = key;
  }
  return best;
}

void IdealExchange::advance() {
  double passed = std::chrono::duration<double>(alarm_.now() - last_).count();
  last_ = alarm_.now();
  for (auto next = highest_priority(); next && passed > 0; next = highest_priority()) {
    InFlight& operation = in_flight_.at(*next);
    const double used = std::min(passed, operation.left);
    operation.left -= used;
    if (operation.left < 1e-12) operation.left = 0;
    passed -= used;
  }
}

}  // namespace gradwire::step
