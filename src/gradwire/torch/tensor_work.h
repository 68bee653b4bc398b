#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/comm/work.h"

namespace gradwire {

/// c10d's face of one operation, which may consist of several of ours. `finish` (optional) runs
/// once when all of them succeeded and before anybody sees the operation as complete: it moves
/// results to where c10d promised them. Thread-safe.
class TensorWork final : public c10d::Work {
 public:
  TensorWork(Rank rank, c10d::OpType type, std::vector<gradwire::Work> parts,
             std::vector<at::Tensor> outputs, std::function<void()> finish = nullptr);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return state_->outputs; }
  void synchronize() override { wait(); }

  /// Drives the network while it waits. Throws Exception if the operation failed, or with kind
  /// timeout if it is still under way after `timeout` (zero: no limit but the operation's own).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  /// Completes with `result()` on the thread that completes the operation.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  /// Shared with completion callbacks, which may outlive the Work.
  struct State {
    std::vector<gradwire::Work> parts;
    std::vector<at::Tensor> outputs;
    std::function<void()> finish;
    std::once_flag finished;

    bool done() const;
    std::exception_ptr error() const;
    void finish_once();
  };

  static void complete(State& state, c10::ivalue::Future& future);

  std::shared_ptr<State> state_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace gradwire
