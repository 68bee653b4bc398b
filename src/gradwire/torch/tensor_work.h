#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/work.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/hooks.h"

namespace gradwire {

/// Wraps `task`, to be run once on another thread, so that it runs with this thread's state of
/// libtorch's profilers and of MemoryTracker. It is then attributed to this thread, as is the
/// release of what `task` holds.
std::function<void()> with_thread_state(std::function<void()> task);

/// The gradwire operations that implement one c10d operation.
struct TensorOperation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::vector<gradwire::Work> parts;
  std::vector<at::Tensor> outputs;  ///< Results of Work::result() and the future.
  /// Runs once after all parts succeeded, before the operation is reported as complete: it moves
  /// results to their destinations. May be empty.
  std::function<void()> finish;
};

class UnmovedResults;

/// The c10d::Work of one operation, which may consist of several gradwire operations. Thread-safe.
class TensorWork final : public c10d::Work {
 public:
  TensorWork(Rank rank, std::uint64_t number, TensorOperation operation,
             std::shared_ptr<CompletionThreads> threads, std::shared_ptr<UnmovedResults> unmoved);

  const TensorOperation& operation() const { return state_->operation; }

  /// Also runs `then` when the operation finishes, and reports `outputs` as its results. Call
  /// before the Work is visible to users.
  void finish_with(std::function<void()> then, std::vector<at::Tensor> outputs);

  /// Reports the operation's end to `hooks`, with `key`. Call at most once, before the Work is
  /// visible to users.
  void report_to(std::shared_ptr<Hooks> hooks, std::uint64_t key);
  /// Overrides Work's from PyTorch 2.15 on.
  virtual std::uint64_t getCompletionKey() const { return key_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return state_->operation.outputs; }
  void synchronize() override { wait(); }
  std::uint64_t getSequencenumber() const override { return number_; }

  /// Returns the sender of a completed receive from any rank. Throws Exception for other operations
  /// and before completion.
  int sourceRank() const override;

  /// Drives the network while it waits. Throws Exception if the operation failed, or with kind
  /// timeout if it is still in flight after `timeout` (zero: only the operation's own limit).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  /// Completes with `result()`; callbacks run on a separate thread.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// Completes with a WorkResult, never with an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  friend class UnmovedResults;
  /// Shared with completion callbacks, which may outlive the Work.
  struct State : std::enable_shared_from_this<State> {
    TensorOperation operation;
    std::mutex finishing;  ///< Guards the members below, and operation.finish.
    bool finished = false;
    std::weak_ptr<UnmovedResults> unmoved;
    std::shared_ptr<Hooks> hooks;             ///< Null without a registered hook.
    std::atomic<std::size_t> parts_left = 0;  ///< Until hooks are called.

    bool done() const;
    std::exception_ptr error() const;
    void finish_once();
    /// Calls the hooks when the last part is done.
    void part_is_done(std::uint64_t key, Time posted, CompletionThreads& threads);
    /// Returns the error of the operation, or of finishing it; null on success.
    std::exception_ptr finish_or_error() noexcept;
  };

  void wait_for_parts(std::chrono::milliseconds timeout) const;
  static void complete(State& state, c10::ivalue::Future& future);
  void when_done(const std::function<void()>& then) const;

  std::shared_ptr<State> state_;
  std::uint64_t number_;
  std::uint64_t key_ = 0;
  std::shared_ptr<CompletionThreads> threads_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Operations of a group whose results have not been moved to their destinations yet
/// (TensorOperation::finish). Waiting for a Work moves its results. A barrier and the end of the
/// group guarantee results too, so these operations are kept here, even without their Work.
/// Thread-safe.
class UnmovedResults {
 public:
  /// Moves the results of all completed operations.
  void move();

 private:
  friend class TensorWork;
  using State = TensorWork::State;
  void add(const std::shared_ptr<State>& state);
  void remove(const std::shared_ptr<State>& state);

  std::mutex mutex_;
  std::set<std::shared_ptr<State>> states_;
};

/// Collects each thread's operations between startCoalescing() and endCoalescing(). PyTorch does
/// not call endCoalescing() if an exception interrupts the block. To avoid holding tensors in an
/// abandoned list, successful works are dropped as the list grows. Thread-safe.
class CoalescedWorks {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// Starts the calling thread's list; discards one that was not ended.
  void start();
  /// No effect if the calling thread has no list.
  void add(const WorkPointer& work);
  /// Ends the calling thread's list and returns it, without works that were dropped after success.
  std::vector<WorkPointer> end();

 private:
  static constexpr std::size_t kCleanAt = 64;
  struct List {
    std::vector<WorkPointer> works;
    std::size_t clean_at = kCleanAt;  ///< Number of works that triggers the next cleanup.
  };

  std::mutex mutex_;
  std::map<std::thread::id, List> lists_;  ///< Each is accessed only by its own thread.
};

}  // namespace gradwire
