#pragma once

#include <memory>
#include <mutex>

#include "gradwire/base/clock.h"
#include "gradwire/engine/executor.h"
#include "gradwire/engine/work_state.h"

namespace gradwire {

/// Engine of a job with one rank: every operation is complete when post() returns. Uses no network,
/// thread or port.
class SoloEngine final : public Engine {
 public:
  SoloEngine(const ExecutorOptions& options, std::shared_ptr<const Clock> clock);
  ~SoloEngine() override;

  void post(OperationRequest request) override;
  void post(std::vector<OperationRequest> requests) override;
  Time now() const override { return clock_->now(); }
  void wait(const WorkState&, Time) override {}
  void abort(Error error) override;
  void close(Close) override {}
  Executor::Traffic traffic() override { return {}; }

 private:
  class NoTransport;

  template <class Action>
  void run(const Action& action);

  std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::unique_ptr<NoTransport> transport_;
  Executor executor_;
};

}  // namespace gradwire
