#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/report/trace.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// ShardExchange (gradient/shard_exchange.h, which has the rules) for tensors, over any c10d group.
class UnitExchange {
 public:
  virtual ~UnitExchange() = default;

  /// Begins `shard` = the mean over ranks of this rank's part of `unit`, or the sum if the group's
  /// backend cannot average (can_average): gradients must then have been divided before.
  virtual void start_reduce(std::size_t index, const torch::Tensor& unit,
                            const torch::Tensor& shard, int urgency) = 0;
  /// Begins `unit` = the ranks' shards one after the other.
  virtual void start_gather(std::size_t index, const torch::Tensor& shard,
                            const torch::Tensor& unit, int urgency) = 0;

  /// Whether all that the group does must be started in one order on all ranks, so that nothing
  /// may start just because something else has come.
  virtual bool in_one_order() const = 0;

  virtual bool reduced(std::size_t index) = 0;
  virtual void wait_reduce(std::size_t index) = 0;
  virtual void wait_gather(std::size_t index) = 0;

  /// As ShardExchange's; nothing where nothing is lost.
  virtual void end_pass() {}
  virtual Averager* feedback() { return nullptr; }
};

/// For these units, whose reductions travel as `codec` says; `shards` are this rank's parts, on the
/// device on which the units are. Of gradwire's own groups it uses two lanes of the communicator,
/// which it reserves: ranks that make several make them in the same order; of others the
/// reduce-scatter and all-gather of flat tensors, and all-reduce and all-gather where the backend
/// has no such. In a world of one nothing travels. `trace` gets what is under way, and what is
/// waited for; null: nobody does. Throws Exception: unsupported (a codec on a group of others; on a
/// group of our own some units on an accelerator and some not), or as coded_shard_exchange does.
std::unique_ptr<UnitExchange> unit_exchange(const ProcessGroup& group,
                                            const std::vector<BucketShape>& units,
                                            const std::vector<torch::Tensor>& shards,
                                            const AveragerOptions& codec, TraceRecorder* trace);

}  // namespace gradwire
