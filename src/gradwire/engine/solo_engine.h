#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/engine/engine.h"
#include "gradwire/engine/executor.h"

namespace gradwire::engine {

/// Engine of a job with one rank: every operation is complete when post() returns, except a receive
/// of a message that the rank has not yet sent to itself. Uses no network, thread or port, so only
/// wait() enforces the timeout of such a receive.
class SoloEngine final : public Engine {
 public:
  SoloEngine(const ExecutorOptions& options, std::shared_ptr<const Clock> clock);
  ~SoloEngine() override;

  void post(OperationRequest request) override;
  void post(std::vector<OperationRequest> requests) override;
  Time now() const override { return clock_->now(); }
  void wait(const PostedWork& state, Time until) override;
  void abort(Error error) override;
  void abort_with(Rank /*peer*/, Error error) override { abort(std::move(error)); }
  void close(Close how, const std::string& failure) override;
  Executor::Traffic traffic() override { return {}; }

 private:
  class NoTransport;

  template <class Action>
  void run(const Action& action);

  std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::condition_variable waiters_;  ///< Notified when an operation has ended.
  std::unique_ptr<NoTransport> transport_;
  Executor executor_;
};

}  // namespace gradwire::engine
