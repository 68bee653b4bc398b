#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gradwire/comm/executor.h"
#include "gradwire/comm/operation.h"
#include "gradwire/comm/work.h"

namespace gradwire {

class Engine;

/// What the handles of one operation share: whether it is done, and the memory it holds on to.
class WorkState final : public Completion, public std::enable_shared_from_this<WorkState> {
 public:
  explicit WorkState(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  /// Owns memory until the operation is done.
  void keep(std::shared_ptr<const void> memory) {
    if (memory) kept_.push_back(std::move(memory));
  }
  /// Runs once on success, before anybody hears of it.
  void before_success(std::function<void()> action) { before_success_ = std::move(action); }

  // What the executor says, under the engine's lock: so nothing happens yet but that the engine
  // notes it.
  void resolved(Rank from) override { source_ = from; }
  void succeeded() override;
  void failed(const Error& error) override;

  /// Makes the outcome known: lets go of the memory, sets done() and runs the callbacks. Must not
  /// be called under a lock that a callback or the owner of the memory may want: freeing a tensor
  /// of Python's takes Python's lock.
  void settle();

  /// The same for what no executor ran.
  void conclude(std::shared_ptr<const Error> error);

  /// Whose message was received; -1 if that is not what this is, or not known yet.
  Rank source() const { return done() ? source_ : -1; }

  bool done() const { return done_.load(std::memory_order_acquire); }
  std::shared_ptr<const Error> error() const { return done() ? error_ : nullptr; }
  bool wait(Time until) const;
  void on_done(std::function<void(const Work&)> callback);

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::function<void()> before_success_;
  std::shared_ptr<const Error> error_;
  Rank source_ = -1;
  std::atomic<bool> done_ = false;
  std::mutex callbacks_mutex_;
  std::vector<std::function<void(const Work&)>> callbacks_;
};

/// Runs operations: what a Communicator posts to, and a Work waits on. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void post(OperationRequest request) = 0;
  /// Several that start together, in this order.
  virtual void post(std::vector<OperationRequest> requests) = 0;
  /// Returns when `state` is done, or at `until`.
  virtual void wait(const WorkState& state, Time until) = 0;
  virtual void abort(Error error) = 0;
  enum class Close : std::uint8_t {
    completing,  ///< What other ranks may need of this one completes first.
    at_once,     ///< What is in flight fails, here and on the peers.
  };
  /// Says goodbye, and stops. Nothing may be posted afterwards. Idempotent.
  virtual void close(Close how) = 0;
  virtual Executor::Traffic traffic() = 0;

  /// An operation has ended. Called under the engine's lock.
  void ended(std::shared_ptr<WorkState> state) { ended_.push_back(std::move(state)); }

 protected:
  using Ended = std::vector<std::shared_ptr<WorkState>>;

  /// What has ended since the last call. To be called with the engine locked; to be settled when it
  /// no longer is.
  Ended take_ended() { return std::exchange(ended_, {}); }
  static void settle(const Ended& ended) {
    for (const auto& state : ended) state->settle();
  }

 private:
  Ended ended_;
};

}  // namespace gradwire
