#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/torch/coalesced_works.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/group_options.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {

/// A Communicator as a c10d backend called "gradwire": nothing but translation. Operations are
/// asynchronous; tensors must be dense and on the CPU, and are kept alive until the operation
/// completes; those that are not contiguous travel as copies (ContiguousCopies). Whatever it is not
/// given the memory for in the right shape is refused with an Exception that names rank, operation
/// and argument, before anything is sent. Thread-safe as Communicator is.
///
/// Any element type can be moved; tensor_reduction.h says what can be reduced. Operations without a
/// timeout of their own have the group's.
class ProcessGroupGradwire : public c10d::Backend {
 public:
  using TensorList = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// `options` (optional) is what the communicator was made from. Collectives go in `lane`.
  explicit ProcessGroupGradwire(std::shared_ptr<Communicator> communicator,
                                c10::intrusive_ptr<GroupOptions> options = nullptr, int lane = 0);
  ~ProcessGroupGradwire() override;

  const std::string getBackendName() const override { return "gradwire"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  /// Throws Exception(aborted) after shutdown().
  std::shared_ptr<Communicator> communicator() const;

  // Movements (process_group_movements.cpp).

  /// From rank opts.rootRank. Several tensors of one size: all of them, on all ranks, get what
  /// tensor opts.rootTensor of the root has.
  WorkPointer broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  /// outputs[0][r] = input[0] of rank r; where the outputs differ in size, so do the inputs.
  /// Of n inputs, each of n lists gets all: outputs[i][r * n + j] = input[j] of rank r.
  WorkPointer allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                        const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  /// outputs[r][i] = inputs[i] of rank r.
  WorkPointer allgather_coalesced(std::vector<TensorList>& outputs, TensorList& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  /// outputs[i] = inputs[i] of all ranks, one after the other.
  WorkPointer allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  /// On the root outputs[0][r] = inputs[0] of rank r; elsewhere `outputs` is empty.
  WorkPointer gather(std::vector<TensorList>& outputs, TensorList& inputs,
                     const c10d::GatherOptions& opts) override;
  /// outputs[0] = inputs[0][this rank] of the root; elsewhere `inputs` is empty.
  WorkPointer scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                      const c10d::ScatterOptions& opts) override;
  /// outputs[r] = inputs[this rank] of rank r; any sizes, on which both must agree.
  WorkPointer alltoall(TensorList& outputs, TensorList& inputs,
                       const c10d::AllToAllOptions& opts) override;
  /// Along the first dimension; without splits in equal parts.
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override;

  // Reductions (process_group_reductions.cpp).

  /// In place. Several tensors of one size count as those of so many ranks more: all of them, on
  /// all ranks, get the reduction (not AVG or PREMUL_SUM) of all.
  WorkPointer allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  /// Any number of tensors, each in place.
  WorkPointer allreduce_coalesced(TensorList& tensors,
                                  const c10d::AllreduceCoalescedOptions& opts) override;
  /// tensors[0] on the root = the reduction over ranks; elsewhere it stays as it is.
  WorkPointer reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;
  /// outputs[0] = the reduction over ranks of inputs[0][this rank], which may differ in size.
  WorkPointer reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;

  // Messages and barriers (process_group_messages.cpp). Tags are 0 .. 2^30 - 1.

  WorkPointer send(TensorList& tensors, int to, int tag) override;
  WorkPointer recv(TensorList& tensors, int from, int tag) override;
  /// Work::sourceRank() says whose message it was.
  WorkPointer recvAnysource(TensorList& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  /// A barrier that throws here and now; rank 0's error names all ranks that are missing, whatever
  /// `wait_all_ranks` says.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // The group itself (process_group.cpp).

  /// Until endCoalescing(), whose Work completes when all operations that the calling thread began
  /// in between have; the results are those operations' own. It has no future where tensors of an
  /// accelerator or sparse ones were among them.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  /// A group of `ranks` (of this group), which meet in `store`; null where this rank is not one.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;

  /// Of operations from now on.
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Ranks that call the same operations have the same number; none is agreed upon.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return operations_; }
  /// Fails whatever is in flight, here and on the peers.
  void abort() override;
  /// The same, telling the peers `why`.
  void abort_because(const std::string& why);
  /// Waits for what is in flight, within its timeouts, and says goodbye to the peers. Returns when
  /// all callbacks have run.
  void shutdown() override;
  /// Says goodbye now; what is in flight fails, here and on the peers. For a process that has
  /// failed.
  void leave_at_once();

  // The two halves of shutdown(), for groups that share a communicator: all of them release it
  // before any of them ends its callbacks' threads, which the last operations still use.
  void release();
  void close_callbacks();

 protected:
  /// A group like this one for split(): a class of its own kind where a subclass says so.
  virtual c10::intrusive_ptr<Backend> make_split(std::shared_ptr<Communicator> communicator,
                                                 c10::intrusive_ptr<GroupOptions> options) const;

  ArgumentName name(const char* operation, std::string_view argument) const {
    return {operation, argument, rank_};
  }
  std::uint64_t next_number() { return ++operations_; }
  OperationOptions options_with(std::chrono::milliseconds timeout) const;
  /// Of every operation; see startCoalescing().
  void collect(const WorkPointer& work) { coalesced_.add(work); }

 private:
  WorkPointer track(TensorOperation operation);

  WorkPointer gather_many(const std::vector<TensorList>& outputs, const TensorList& inputs,
                          const OperationOptions& options);
  WorkPointer gather_lists(const std::vector<TensorList>& lists, const TensorList& inputs,
                           c10d::OpType type, const OperationOptions& options);
  WorkPointer scatter_reduced(const TensorList& outputs, const TensorList& inputs,
                              const c10d::ReduceScatterOptions& opts, c10d::OpType type);

  const int lane_;
  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;  ///< Null after shutdown().
  c10::intrusive_ptr<GroupOptions> options_;
  std::shared_ptr<CompletionThreads> threads_;
  std::shared_ptr<UnmovedResults> unmoved_ = std::make_shared<UnmovedResults>();
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> operations_ = 0;
  CoalescedWorks coalesced_;
};

/// The backend inside a c10d::ProcessGroup, which is what libtorch code takes: a
/// StagedProcessGroup, for the CPU and for the accelerator, if this libtorch has one. `store`
/// (optional) is what the group says its store is.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store = nullptr);

/// The Communicator behind a group made by make_process_group; null for any other group.
std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group);

}  // namespace gradwire
