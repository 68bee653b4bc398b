#include "gradwire/engine/posted_work.h"

#include <exception>
#include <utility>

#include "gradwire/engine/engine.h"

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

void PostedWork::succeeded() {
  engine_->ended(shared());
}

void PostedWork::failed(const Error& error) {
  error_ = std::make_shared<const Error>(error);
  engine_->ended(shared());
}

void PostedWork::conclude(std::shared_ptr<const Error> error) {
  error_ = std::move(error);
  publish();
}

void PostedWork::publish() {
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
  for_all(callbacks, [work = handle()](const auto& callback) { callback(work); });
}

void PostedWork::wait() {
  if (!is_done()) engine_->wait(*this, Time::max());
  if (error_) throw Exception(*error_);
}

bool PostedWork::wait_for(Duration timeout) {
  if (!is_done()) engine_->wait(*this, after(engine_->now(), timeout));
  if (!is_done()) return false;
  if (error_) throw Exception(*error_);
  return true;
}

void PostedWork::on_done(std::function<void(const Work&)> callback) {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (!is_done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(handle());
}

void PostedWork::drive_in_background() {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if (is_done() || background_) return;
    background_ = true;
  }
  engine_->drive_in_background(1);
}

void Engine::publish(const Ended& ended) {
  for_all(ended, [](const auto& work) { work->publish(); });
}

}  // namespace gradwire::engine
