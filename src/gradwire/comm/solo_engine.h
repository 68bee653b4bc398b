#pragma once

#include <memory>
#include <mutex>

#include "gradwire/base/clock.h"
#include "gradwire/comm/executor.h"
#include "gradwire/comm/work_state.h"

namespace gradwire {

/// The engine of a world of one: every operation is done when post() returns, and there is no
/// network, no thread and no port.
class SoloEngine final : public Engine {
 public:
  SoloEngine(const ExecutorOptions& options, const Clock& clock);
  ~SoloEngine() override;

  void post(OperationRequest request) override;
  void post(std::vector<OperationRequest> requests) override;
  void wait(const WorkState&, Time) override {}
  void abort(Error error) override;
  void close(Close) override {}
  Executor::Traffic traffic() override { return {}; }

 private:
  class NoTransport;

  template <class Action>
  void run(const Action& action);

  const Clock& clock_;
  std::mutex mutex_;
  std::unique_ptr<NoTransport> transport_;
  Executor executor_;
};

}  // namespace gradwire
