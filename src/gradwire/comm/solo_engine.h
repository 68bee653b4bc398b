#pragma once

#include <memory>
#include <mutex>

#include "gradwire/base/clock.h"
#include "gradwire/engine/executor.h"
#include "gradwire/engine/work_state.h"

namespace gradwire {

/// Engine of a job with one rank: every operation is complete when post() returns. Uses no network,
/// thread or port.
class SoloEngine final : public engine::Engine {
 public:
  SoloEngine(const engine::ExecutorOptions& options, std::shared_ptr<const Clock> clock);
  ~SoloEngine() override;

  void post(engine::OperationRequest request) override;
  void post(std::vector<engine::OperationRequest> requests) override;
  Time now() const override { return clock_->now(); }
  void wait(const engine::WorkState&, Time) override {}
  void abort(Error error) override;
  void close(Close, const std::string&) override {}
  engine::Executor::Traffic traffic() override { return {}; }

 private:
  class NoTransport;

  template <class Action>
  void run(const Action& action);

  std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::unique_ptr<NoTransport> transport_;
  engine::Executor executor_;
};

}  // namespace gradwire
