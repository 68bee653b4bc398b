#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gradwire/torch/hybrid_collectives.h"
#include "gradwire/torch/staged_process_group.h"

namespace gradwire {

/// A StagedProcessGroup whose reductions and gathers of large tensors run in two levels
/// (hybrid_collectives.h) once it has backends for the ranks of a host: all_reduce, reduce_scatter
/// and all_gather of single tensors, of types and reductions that all backends have. All other
/// operations are the base class's.
class HybridProcessGroup : public StagedProcessGroup {
 public:
  using StagedProcessGroup::StagedProcessGroup;
  ~HybridProcessGroup() override;

  /// Called once, before any operation. Collective. `inside`: of the ranks grid.inside(), numbered
  /// by their places; without them gradwire's own, through shared memory. No effect if each host
  /// has one rank.
  void use_inside(const HostGrid& grid, InsideBackends inside = {});

  /// Null without use_inside().
  const std::shared_ptr<HybridCollectives>& hybrid() const { return hybrid_; }
  /// The ranks at this place of each host; null without use_inside(), and with one host.
  const c10::intrusive_ptr<StagedProcessGroup>& between() const { return between_; }

  WorkPointer allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  void leave_at_once(const std::string& failure) override;

 private:
  bool is_hybrid(const at::Tensor& whole, const at::Tensor& part) const;
  WorkPointer reported(WorkPointer work);
  std::chrono::milliseconds timeout_inside(std::chrono::milliseconds timeout) const;
  HybridCollectives::Reduction reduction_inside(const c10d::ReduceOp& op,
                                                std::chrono::milliseconds timeout) const;

  InsideBackends inside_;
  c10::intrusive_ptr<StagedProcessGroup> between_;
  std::shared_ptr<HybridCollectives> hybrid_;
};

/// The backend of a group that works in two levels; null for any other.
c10::intrusive_ptr<HybridProcessGroup> hybrid_backend_of(c10d::ProcessGroup& group);

/// Throws Exception(unsupported), which names `what`, for a group that works in two levels.
void refuse_inside(c10d::ProcessGroup& group, std::string_view what);

}  // namespace gradwire
