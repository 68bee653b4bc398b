#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gradwire/base/work.h"
#include "gradwire/engine/operations/operation.h"

namespace gradwire::engine {

class Engine;

/// State of an operation that is posted to an engine: its result, and the memory that it keeps
/// alive.
class PostedWork final : public Completion, public WorkState {
 public:
  explicit PostedWork(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  /// Keeps memory alive until the operation is done.
  void keep(std::shared_ptr<const void> memory) {
    if (memory) kept_.push_back(std::move(memory));
  }
  /// Sets an action that runs once on success, before the result is visible.
  void before_success(std::function<void()> action) { before_success_ = std::move(action); }

  // Called by the executor under the engine's lock, so they only record the result.
  void resolved(Rank from) override { source_ = from; }
  void succeeded() override;
  void failed(const Error& error) override;

  /// Publishes the result: releases the memory, sets done() and runs the callbacks. Must not be
  /// called under a lock that a callback or the owner of the memory may need: freeing a Python
  /// tensor takes the GIL. Runs all callbacks, then rethrows the first exception of one.
  void publish();

  /// publish() for an operation that no executor ran.
  void conclude(std::shared_ptr<const Error> error);

  /// done(), for the engine.
  bool is_done() const { return done_.load(std::memory_order_acquire); }

  // WorkState
  bool done() override { return is_done(); }
  void wait() override;
  bool wait_for(Duration timeout) override;
  std::shared_ptr<const Error> error() override { return is_done() ? error_ : nullptr; }
  Rank source() override { return is_done() ? source_ : -1; }
  void on_done(std::function<void(const Work&)> callback) override;
  void drive_in_background() override;

 private:
  std::shared_ptr<PostedWork> shared() {
    return std::static_pointer_cast<PostedWork>(shared_from_this());
  }

  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::function<void()> before_success_;
  std::shared_ptr<const Error> error_;
  Rank source_ = -1;
  std::atomic<bool> done_ = false;
  std::mutex callbacks_mutex_;
  std::vector<std::function<void(const Work&)>> callbacks_;
  bool background_ = false;  ///< Guarded by `callbacks_mutex_`.
};

}  // namespace gradwire::engine
