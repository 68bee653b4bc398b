#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/group_options.h"
#include "gradwire/torch/hooks.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {

/// The part of a c10d backend that is not an operation: the group's life, its parts, the hooks and
/// the coalescing of its operations. Thread-safe.
class GroupBackend : public c10d::Backend {
 public:
  using TensorList = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// `options` (optional): the communicator's options. Collectives run in `lane`.
  explicit GroupBackend(std::shared_ptr<Communicator> communicator,
                        c10::intrusive_ptr<GroupOptions> options = nullptr, int lane = 0);
  ~GroupBackend() override;

  const std::string getBackendName() const override { return "gradwire"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  /// Throws Exception(aborted) after shutdown().
  std::shared_ptr<Communicator> communicator() const;

  /// Coalesces operations: endCoalescing() returns a Work that completes when all operations of the
  /// calling thread since startCoalescing() have completed. Results are available from the
  /// individual operations. It has no future if accelerator or sparse tensors are involved.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  /// Creates a group of `ranks` (of this group) with rendezvous in `store`; returns null if this
  /// rank is not among them.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;

  /// Completion hooks run when an operation has succeeded, on the thread that finds out, with its
  /// time since it was posted. Abort hooks run when one has failed or the group is aborted, before
  /// wait() throws. These override Backend's from PyTorch 2.14 (abort) and 2.15 (completion) on.
  virtual bool supportsCompletionHooks() const { return true; }
  virtual void registerCompletionHook(std::int64_t hook_id, CompletionHook hook);
  virtual void unregisterCompletionHook(std::int64_t hook_id);
  virtual bool supportsAbortHooks() const { return true; }
  virtual void registerAbortHook(std::int64_t hook_id, AbortHook hook);
  virtual void unregisterAbortHook(std::int64_t hook_id);

  /// Applies to later operations.
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// No agreement is needed: ranks that call the same operations count the same.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return operations_; }
  /// Fails all operations in flight, on this rank and on the peers.
  void abort() override;
  /// The same, with the reason `why` for the peers.
  void abort_with_reason(const std::string& why);
  /// Graceful shutdown: waits for operations in flight, within their timeouts, and sends goodbye to
  /// the peers. Returns when all callbacks have run.
  void shutdown() override;
  /// Sends goodbye immediately; operations in flight fail on this rank and on the peers. For a
  /// process that has failed; `failure` says how, as in Communicator::leave_at_once().
  virtual void leave_at_once(const std::string& failure);

  // The two halves of shutdown(), for groups that share a communicator. All of them must release it
  // before any stops its callback threads, which the last operations still use.
  void release();
  void close_callbacks();

 protected:
  /// Makes a group for split(); of the subclass's own type.
  virtual c10::intrusive_ptr<Backend> make_split(
      std::shared_ptr<Communicator> communicator,
      c10::intrusive_ptr<GroupOptions> options) const = 0;

  std::uint64_t next_number() { return ++operations_; }
  OperationOptions options_with(std::chrono::milliseconds timeout) const;
  /// Called for every operation; see startCoalescing().
  void collect(const WorkPointer& work) { coalesced_.add(work); }
  /// Reports the end of an operation that is no TensorWork to the hooks.
  void report_staged(const WorkPointer& work) const;
  /// Returns the Work of an operation that has been posted.
  WorkPointer track(TensorOperation operation);
  /// Results that are moved to their tensors when a Work is asked.
  const std::shared_ptr<UnmovedResults>& unmoved() const { return unmoved_; }

 private:
  const int lane_;
  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;  ///< Null after shutdown().
  c10::intrusive_ptr<GroupOptions> options_;
  std::shared_ptr<CompletionThreads> threads_;
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  std::shared_ptr<UnmovedResults> unmoved_ = std::make_shared<UnmovedResults>();
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> operations_ = 0;
  CoalescedWorks coalesced_;
};

}  // namespace gradwire
