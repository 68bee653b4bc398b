#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/comm/work.h"
#include "gradwire/torch/completion_threads.h"

namespace gradwire {

/// Operations of ours that make up one of c10d's.
struct TensorOperation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::vector<Work> parts;
  std::vector<at::Tensor> outputs;  ///< What Work::result() and the future give.
  /// Runs once when all parts succeeded and before anybody sees the operation as complete: it moves
  /// results to where c10d promised them. May be empty.
  std::function<void()> finish;
};

class UnmovedResults;

/// c10d's face of one operation, which may consist of several of ours. Thread-safe.
class TensorWork final : public c10d::Work {
 public:
  TensorWork(Rank rank, std::uint64_t number, TensorOperation operation,
             std::shared_ptr<CompletionThreads> threads, std::shared_ptr<UnmovedResults> unmoved);

  const TensorOperation& operation() const { return state_->operation; }

  /// Also runs `then` when the operation finishes, and has `outputs` for its results. Of a Work
  /// that no user knows yet.
  void finish_with(std::function<void()> then, std::vector<at::Tensor> outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return state_->operation.outputs; }
  void synchronize() override { wait(); }
  std::uint64_t getSequencenumber() const override { return number_; }

  /// Of a receive from any rank, once it is complete: whose message it was. Throws Exception for
  /// other operations and before.
  int sourceRank() const override;

  /// Drives the network while it waits. Throws Exception if the operation failed, or with kind
  /// timeout if it is still under way after `timeout` (zero: no limit but the operation's own).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  /// Completes with `result()`, callbacks running on a thread of their own.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// Completes with a WorkResult, and never with an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  friend class UnmovedResults;
  /// Shared with completion callbacks, which may outlive the Work.
  struct State : std::enable_shared_from_this<State> {
    TensorOperation operation;
    std::mutex finishing;  ///< Guards what follows, and operation.finish.
    bool finished = false;
    std::weak_ptr<UnmovedResults> unmoved;

    bool done() const;
    std::exception_ptr error() const;
    void finish_once();
    /// Of the operation, or of finishing it; null: all is well.
    std::exception_ptr finish_or_error() noexcept;
  };

  static void complete(State& state, c10::ivalue::Future& future);
  void when_done(const std::function<void()>& then) const;

  std::shared_ptr<State> state_;
  std::uint64_t number_;
  std::shared_ptr<CompletionThreads> threads_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// The operations of a group whose results have yet to be moved to where c10d promised them
/// (TensorOperation::finish). Who waits for a Work moves them; for a barrier and the end of the
/// group, after which they must be there too, they are kept here, with or without their Work.
/// Thread-safe.
class UnmovedResults {
 public:
  /// Moves those of all operations that have completed.
  void move();

 private:
  friend class TensorWork;
  using State = TensorWork::State;
  void add(const std::shared_ptr<State>& state);
  void remove(const std::shared_ptr<State>& state);

  std::mutex mutex_;
  std::set<std::shared_ptr<State>> states_;
};

}  // namespace gradwire
