#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gradwire/engine/executor.h"
#include "gradwire/engine/operation.h"
#include "gradwire/engine/work.h"

namespace gradwire::engine {

class Engine;

/// State shared by the handles of one operation: its result, and the memory that it keeps alive.
class WorkState final : public Completion, public std::enable_shared_from_this<WorkState> {
 public:
  explicit WorkState(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

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

  /// Returns the sender of a completed receive; -1 if it is in flight or is not a receive.
  Rank source() const { return done() ? source_ : -1; }

  bool done() const { return done_.load(std::memory_order_acquire); }
  std::shared_ptr<const Error> error() const { return done() ? error_ : nullptr; }
  bool wait(Time until) const;
  bool wait_for(Duration timeout) const;
  void on_done(std::function<void(const Work&)> callback);
  void drive_in_background();

 private:
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

/// Executes operations: a Communicator posts to it, and a Work waits on it. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void post(OperationRequest request) = 0;
  /// Posts several operations that start together, in this order.
  virtual void post(std::vector<OperationRequest> requests) = 0;
  virtual Time now() const = 0;
  /// Returns when `state` is done, or at `until`.
  virtual void wait(const WorkState& state, Time until) = 0;
  /// Changes the number of operations in flight for which no thread will wait. An engine whose
  /// operations complete by themselves ignores it.
  virtual void drive_in_background(int /*change*/) {}
  virtual void abort(Error error) = 0;
  enum class Close : std::uint8_t {
    completing,  ///< Operations that other ranks may need complete first.
    at_once,     ///< Operations in flight fail, here and on the peers.
  };
  /// Says goodbye to the peers and stops. Nothing may be posted afterwards. Idempotent. `failure`:
  /// why this rank leaves early, for the peers' errors, such as "after an exception: ..."; "" if it
  /// does not.
  virtual void close(Close how, const std::string& failure) = 0;
  virtual Executor::Traffic traffic() = 0;

  /// Records that an operation has ended. Called under the engine's lock.
  void ended(std::shared_ptr<WorkState> state) { ended_.push_back(std::move(state)); }

 protected:
  using Ended = std::vector<std::shared_ptr<WorkState>>;

  /// Returns the operations that have ended since the last call. Must be called with the engine
  /// locked; the caller publishes them after the unlock.
  Ended take_ended() { return std::exchange(ended_, {}); }
  /// Publishes all of them, then rethrows the first exception of a callback.
  static void publish(const Ended& ended);

 private:
  Ended ended_;
};

}  // namespace gradwire::engine
