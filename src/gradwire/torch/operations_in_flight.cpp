#include "gradwire/torch/operations_in_flight.h"

namespace gradwire {

OperationsInFlight::Token OperationsInFlight::begin() {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t number = state_->next++;
  state_->numbers.insert(number);
  return {nullptr, [state = state_, number](std::nullptr_t) {
            const std::lock_guard ending(state->mutex);
            state->numbers.erase(number);
            state->over.notify_all();
          }};
}

bool OperationsInFlight::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  const auto none_before = [this, until = state_->next] {
    return state_->numbers.empty() || *state_->numbers.begin() >= until;
  };
  if (timeout > std::chrono::milliseconds::zero()) {
    return state_->over.wait_for(lock, timeout, none_before);
  }
  state_->over.wait(lock, none_before);
  return true;
}

}  // namespace gradwire
