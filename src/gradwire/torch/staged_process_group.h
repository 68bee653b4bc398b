#pragma once

#include "gradwire/torch/device_staging.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/sparse_all_reduce.h"

namespace gradwire {

/// A ProcessGroupGradwire that also all-reduces sparse CPU tensors (sparse_all_reduce.h), and
/// accepts an accelerator's tensors, which it stages through host memory (device_staging.h). All
/// tensors of one operation must be on one device. Operations on CPU tensors are the base class's.
/// Errors in shapes, types and reductions of an accelerator's tensors are thrown by Work::wait(),
/// not by the call.
///
/// Collectives on a device run in a separate lane: they are ordered among each other, but not with
/// those on the CPU. Messages are not ordered by lanes: between two ranks, use one tag for one
/// device type only, unless the sender waits before it sends from the other type.
class StagedProcessGroup : public ProcessGroupGradwire {
 public:
  /// Tensors are cut into segments of about `segment_bytes`, the same on all ranks.
  explicit StagedProcessGroup(std::shared_ptr<Communicator> communicator,
                              c10::intrusive_ptr<GroupOptions> options = nullptr,
                              std::size_t segment_bytes = std::size_t{4} << 20);
  ~StagedProcessGroup() override;

  WorkPointer broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPointer allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                        const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(std::vector<TensorList>& outputs, TensorList& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  WorkPointer gather(std::vector<TensorList>& outputs, TensorList& inputs,
                     const c10d::GatherOptions& opts) override;
  WorkPointer scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                      const c10d::ScatterOptions& opts) override;
  WorkPointer alltoall(TensorList& outputs, TensorList& inputs,
                       const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override;

  WorkPointer allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_coalesced(TensorList& tensors,
                                  const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;
  WorkPointer reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;

  WorkPointer send(TensorList& tensors, int to, int tag) override;
  WorkPointer recv(TensorList& tensors, int from, int tag) override;
  WorkPointer recvAnysource(TensorList& tensors, int tag) override;

  /// First waits for staged and sparse collectives, which run in separate lanes: a barrier follows
  /// all earlier operations of the group. The current stream of each device waits for their
  /// results.
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  void shutdown() override;

 protected:
  c10::intrusive_ptr<Backend> make_split(std::shared_ptr<Communicator> communicator,
                                         c10::intrusive_ptr<GroupOptions> options) const override;

 private:
  using HostGroup = c10::intrusive_ptr<ProcessGroupGradwire>;
  using Post = std::function<WorkPointer(ProcessGroupGradwire&, TensorList&, TensorList&)>;

  bool on_device(const TensorList& tensors, const char* operation) const;
  bool on_device(const TensorList& some, const TensorList& others, const char* operation) const;
  std::vector<StagedPart> cut_pairs(const TensorList& inputs, int input_rows,
                                    const TensorList& outputs, int output_rows) const;
  /// All ranks must compute the same number of parts. For operations whose lists have tensors of
  /// one size on every rank, or are known in full to all ranks.
  std::vector<StagedPart> cut_lists(const TensorList& inputs, const TensorList& outputs) const;
  WorkPointer stage(c10d::OpType type, std::vector<StagedPart> parts, TensorList outputs,
                    Post post);

  const std::size_t segment_bytes_;
  HostGroup host_;                ///< Runs the operations on host memory, in a separate lane.
  OperationsInFlight in_flight_;  ///< Collectives outside Base's lane.
  DeviceStaging staging_;
  SparseAllReduce sparse_;
};

}  // namespace gradwire
