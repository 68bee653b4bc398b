#include "gradwire/exchange/unit_tracker.h"

#include <utility>

#include "gradwire/exchange/exchange.h"

namespace gradwire::exchange {

void UnitTracker::begin(std::size_t unit, std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  if (error_) throw Exception(*error_);
  check_idle(unit, missing_[unit] > 0);
  missing_[unit] = pieces;
}

void UnitTracker::piece_done(std::size_t unit) {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (--missing_[unit] > 0) return;
    callback = std::exchange(callbacks_[unit], {});
    changed_.notify_all();
  }
  if (callback) callback();
}

void UnitTracker::fail(const Error& error) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    if (!working_) callbacks = take_callbacks();
    changed_.notify_all();
  }
  for (const auto& callback : callbacks) callback();
}

/// Returns the callbacks of all units in flight.
std::vector<std::function<void()>> UnitTracker::take_callbacks() {
  std::vector<std::function<void()>> callbacks;
  for (auto& callback : callbacks_) {
    if (callback) callbacks.push_back(std::exchange(callback, {}));
  }
  return callbacks;
}

bool UnitTracker::begin_access() {
  const std::lock_guard lock(mutex_);
  if (error_) return false;
  working_ = true;
  return true;
}

void UnitTracker::end_access() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    working_ = false;
    if (!error_) return;
    callbacks = take_callbacks();
    changed_.notify_all();
  }
  for (const auto& callback : callbacks) callback();
}

bool UnitTracker::done(std::size_t unit) const {
  const std::lock_guard lock(mutex_);
  return is_over(unit);
}

void UnitTracker::wait(std::size_t unit) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over(unit); });
  if (missing_[unit] > 0) throw Exception(*error_);
}

void UnitTracker::on_done(std::size_t unit, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_over(unit)) {
      callbacks_[unit] = std::move(callback);
      return;
    }
  }
  callback();
}

}  // namespace gradwire::exchange
