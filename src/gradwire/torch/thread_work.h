#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/base/types.h"
#include "gradwire/torch/completion_threads.h"

namespace gradwire {

/// The Work of an operation that a thread of the group completes. On an accelerator its results are
/// available in stream order: wait() and the future make the current stream wait for them.
/// Thread-safe.
class ThreadWork final : public c10d::Work {
 public:
  /// `outputs`: of result() and the future; all on one device. `callbacks` run those of the future.
  ThreadWork(Rank rank, c10d::OpType type, std::uint64_t number, std::vector<at::Tensor> outputs,
             std::shared_ptr<CompletionThreads> callbacks);

  std::vector<at::Tensor> result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return number_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void synchronize() override;

  /// Called once, by the thread whose current stream has the results; `error`: null on success.
  void complete(const std::exception_ptr& error);

 private:
  std::vector<at::Tensor> outputs_;
  std::uint64_t number_;
  std::shared_ptr<CompletionThreads> callbacks_;
  std::optional<c10::Event> available_;  ///< On an accelerator.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace gradwire
