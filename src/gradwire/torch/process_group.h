#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/torch/group_backend.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// A Communicator as the c10d backend "gradwire"; it only translates calls. Operations are
/// asynchronous. Tensors must be dense and on the CPU; they are kept alive until the operation
/// completes. Non-contiguous tensors are copied (ContiguousCopies). Arguments of the wrong shape or
/// type are rejected before anything is sent, with an Exception that names rank, operation and
/// argument. Thread-safe as Communicator is.
///
/// Any element type can be moved; tensor_reduction.h lists the types that can be reduced.
/// Operations without an explicit timeout use the group's.
class ProcessGroupGradwire : public GroupBackend {
 public:
  using GroupBackend::GroupBackend;

  // Data movement (process_group_movements.cpp).

  /// Broadcasts from rank opts.rootRank. With several tensors of one size, all of them, on all
  /// ranks, receive the root's tensor opts.rootTensor.
  WorkPointer broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  /// outputs[0][r] = input[0] of rank r; sizes may differ between ranks. With n inputs, each of the
  /// n output lists receives all: outputs[i][r * n + j] = input[j] of rank r.
  WorkPointer allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                        const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  /// outputs[r][i] = inputs[i] of rank r.
  WorkPointer allgather_coalesced(std::vector<TensorList>& outputs, TensorList& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  /// outputs[i] = concatenation of all ranks' inputs[i].
  WorkPointer allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  /// On the root outputs[0][r] = inputs[0] of rank r; on other ranks `outputs` must be empty.
  WorkPointer gather(std::vector<TensorList>& outputs, TensorList& inputs,
                     const c10d::GatherOptions& opts) override;
  /// On the root `output` is all inputs in the order of the ranks; on other ranks it is ignored.
  /// Overrides Backend's from PyTorch 2.14 on.
  virtual WorkPointer gather_single(at::Tensor& output, at::Tensor& input,
                                    const c10d::GatherOptions& opts);
  /// outputs[0] = the root's inputs[0][this rank]; on other ranks `inputs` must be empty.
  WorkPointer scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                      const c10d::ScatterOptions& opts) override;
  /// outputs[r] = inputs[this rank] of rank r; sizes may differ, but each pair of ranks must agree.
  WorkPointer alltoall(TensorList& outputs, TensorList& inputs,
                       const c10d::AllToAllOptions& opts) override;
  /// Splits along the first dimension; empty splits mean equal parts.
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override;

  // Reductions (process_group_reductions.cpp).

  /// In place. Several tensors of one size count as tensors of additional ranks: all of them, on
  /// all ranks, receive the reduction of all (not AVG or PREMUL_SUM).
  WorkPointer allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  /// Any number of tensors, each in place.
  WorkPointer allreduce_coalesced(TensorList& tensors,
                                  const c10d::AllreduceCoalescedOptions& opts) override;
  /// tensors[0] on the root = the reduction over ranks; unchanged on other ranks.
  WorkPointer reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;
  /// outputs[0] = the reduction over ranks of inputs[0][this rank]; inputs may differ in size.
  WorkPointer reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;

  // Messages and barriers (process_group_messages.cpp). Tags are 0 .. 2^30 - 1.

  WorkPointer send(TensorList& tensors, int to, int tag) override;
  WorkPointer recv(TensorList& tensors, int from, int tag) override;
  /// Work::sourceRank() returns the sender.
  WorkPointer recvAnysource(TensorList& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  /// A blocking barrier that throws on failure. Rank 0's error names all missing ranks, whatever
  /// `wait_all_ranks` is.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 protected:
  c10::intrusive_ptr<Backend> make_split(std::shared_ptr<Communicator> communicator,
                                         c10::intrusive_ptr<GroupOptions> options) const override;

  /// How an operation's tensors may be cut into parts that run one after the other.
  enum class Cut : std::uint8_t {
    none,   ///< Not at all: sizes may differ between ranks.
    pairs,  ///< Each input with its output, both as matrices: by columns.
    lists,  ///< Lists of tensors of one size on all ranks: as the rows of one matrix.
  };

  /// An operation on tensors that are not on the CPU, to run over host memory.
  struct DeviceOperation {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    TensorList inputs;   ///< Read; an undefined tensor: none.
    TensorList outputs;  ///< Written. A tensor in both lists has one host copy.
    Cut cut = Cut::none;
    int input_rows = 1;  ///< For Cut::pairs.
    int output_rows = 1;
    TensorList results;  ///< Returned by Work::result().
    /// Runs it on a group for host memory, with tensors like those above.
    std::function<WorkPointer(ProcessGroupGradwire& host, TensorList& inputs, TensorList& outputs)>
        post;
  };

  /// Returns true if an operation on these tensors is one for stage(). Throws
  /// Exception(invalid_argument) if they are not on one device.
  virtual bool is_on_device(const TensorList& /*some*/, const TensorList& /*others*/,
                            const char* /*operation*/) const {
    return false;
  }
  /// Runs an operation over host memory. Only called if is_on_device().
  virtual WorkPointer stage(DeviceOperation operation);

  ArgumentName name(const char* operation, std::string_view argument) const {
    return {operation, argument, rank_};
  }

 private:
  WorkPointer gather_many(const std::vector<TensorList>& outputs, const TensorList& inputs,
                          const OperationOptions& options);
  WorkPointer gather_lists(const std::vector<TensorList>& lists, const TensorList& inputs,
                           c10d::OpType type, const OperationOptions& options);
  WorkPointer scatter_reduced(const TensorList& outputs, const TensorList& inputs,
                              const c10d::ReduceScatterOptions& opts, c10d::OpType type);
};

/// Wraps the backend in a c10d::ProcessGroup, as libtorch code expects. The backend is a
/// StagedProcessGroup for the CPU, and for the accelerator if this libtorch has one. `store`
/// (optional) is returned as the group's store.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store = nullptr);

/// Wraps a backend so, for the CPU and for the accelerator if this libtorch has one.
c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(
    const c10::intrusive_ptr<c10d::Backend>& backend,
    c10::intrusive_ptr<c10d::Store> store = nullptr);

/// Returns the Communicator of a gradwire group; null for any other group.
std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group);

/// Returns a group of some of the ranks of a gradwire group, as Communicator::subgroup() does.
/// Throws also Exception(unsupported) for a group of another backend.
c10::intrusive_ptr<c10d::ProcessGroup> subgroup_of(c10d::ProcessGroup& group,
                                                   const std::vector<Rank>& ranks);

}  // namespace gradwire
