#pragma once

#include "gradwire/torch/device_staging.h"
#include "gradwire/torch/operations_in_flight.h"
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

  /// Sparse tensors; others are the base class's.
  WorkPointer allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;

  /// First waits for staged and sparse collectives, which run in separate lanes: a barrier follows
  /// all earlier operations of the group. The current stream of each device waits for their
  /// results.
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  void shutdown() override;

 protected:
  c10::intrusive_ptr<Backend> make_split(std::shared_ptr<Communicator> communicator,
                                         c10::intrusive_ptr<GroupOptions> options) const override;
  bool is_on_device(const TensorList& some, const TensorList& others,
                    const char* operation) const override;
  WorkPointer stage(DeviceOperation operation) override;
  /// Makes barriers wait until the last copy is released: for collectives outside Base's lane.
  OperationsInFlight::Token begin_operation() { return in_flight_.begin(); }

 private:
  using HostGroup = c10::intrusive_ptr<ProcessGroupGradwire>;

  std::vector<StagedPart> parts_of(const DeviceOperation& operation) const;

  const std::size_t segment_bytes_;
  HostGroup host_;                ///< Runs the operations on host memory, in a separate lane.
  OperationsInFlight in_flight_;  ///< Collectives outside Base's lane.
  DeviceStaging staging_;
  SparseAllReduce sparse_;
};

}  // namespace gradwire
