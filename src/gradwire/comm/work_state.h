#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
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

  void resolved(Rank from) override { source_ = from; }
  void succeeded() override;
  void failed(const Error& error) override;

  /// Whose message was received; -1 if that is not what this is, or not known yet.
  Rank source() const { return done() ? source_ : -1; }

  bool done() const { return done_.load(std::memory_order_acquire); }
  std::shared_ptr<const Error> error() const { return done() ? error_ : nullptr; }
  bool wait(Time until) const;
  void on_done(std::function<void(const Work&)> callback);

 private:
  void finish();

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
  /// Ends what is in flight, says goodbye, and stops. Nothing may be posted afterwards. Idempotent.
  virtual void close() = 0;
  virtual Executor::Traffic traffic() = 0;
};

}  // namespace gradwire
