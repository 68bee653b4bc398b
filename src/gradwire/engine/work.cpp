#include "gradwire/engine/work.h"

#include <exception>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/engine/work_state.h"

namespace gradwire::engine {
namespace {

/// Calls `action` for every item, then rethrows the first exception.
template <class Items, class Action>
void for_all(const Items& items, const Action& action) {
  std::exception_ptr first;
  for (const auto& item : items) {
    try {
      action(item);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

void WorkState::succeeded() {
  engine_->ended(shared_from_this());
}

void WorkState::failed(const Error& error) {
  error_ = std::make_shared<const Error>(error);
  engine_->ended(shared_from_this());
}

void WorkState::conclude(std::shared_ptr<const Error> error) {
  error_ = std::move(error);
  publish();
}

void WorkState::publish() {
  if (before_success_ && !error_) before_success_();
  before_success_ = nullptr;
  kept_.clear();
  std::vector<std::function<void(const Work&)>> callbacks;
  bool background = false;
  {
    const std::lock_guard lock(callbacks_mutex_);
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    background = background_;
  }
  if (background) engine_->drive_in_background(-1);
  if (callbacks.empty()) return;
  const Work work(shared_from_this());
  for_all(callbacks, [&](const auto& callback) { callback(work); });
}

bool WorkState::wait(Time until) const {
  if (!done()) engine_->wait(*this, until);
  return done();
}

bool WorkState::wait_for(Duration timeout) const {
  return done() || wait(after(engine_->now(), timeout));
}

void WorkState::on_done(std::function<void(const Work&)> callback) {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(Work(shared_from_this()));
}

void WorkState::drive_in_background() {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (done() || background_) return;
    background_ = true;
  }
  engine_->drive_in_background(1);
}

void Engine::publish(const Ended& ended) {
  for_all(ended, [](const auto& state) { state->publish(); });
}

void Work::wait() const {
  GRADWIRE_CHECK(valid());
  state_->wait(Time::max());
  if (const auto failed = state_->error()) throw Exception(*failed);
}

bool Work::wait_for(Duration timeout) const {
  GRADWIRE_CHECK(valid());
  if (!state_->wait_for(timeout)) return false;
  if (const auto failed = state_->error()) throw Exception(*failed);
  return true;
}

bool Work::done() const {
  return state_->done();
}

std::shared_ptr<const Error> Work::error() const {
  return state_->error();
}

Rank Work::source() const {
  return state_->source();
}

void Work::on_done(std::function<void(const Work&)> callback) const {
  state_->on_done(std::move(callback));
}

void Work::drive_in_background() const {
  state_->drive_in_background();
}

}  // namespace gradwire::engine
