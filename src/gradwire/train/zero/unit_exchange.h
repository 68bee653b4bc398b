#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// ShardExchange (gradient/shard_exchange.h, which has the rules) for tensors, over any c10d group.
class UnitExchange {
 public:
  virtual ~UnitExchange() = default;

  /// Starts `shard` = mean over ranks of this rank's part of `unit`. If the backend cannot average
  /// (can_average), it is the sum: the caller must divide the gradients beforehand.
  virtual void start_reduce(std::size_t index, const torch::Tensor& unit,
                            const torch::Tensor& shard, int priority) = 0;
  /// Starts `unit` = concatenation of the ranks' shards.
  virtual void start_gather(std::size_t index, const torch::Tensor& shard,
                            const torch::Tensor& unit, int priority) = 0;

  /// Returns true if all operations of the group must start in the same order on all ranks. The
  /// start of an operation must then not depend on the completion of another.
  virtual bool requires_same_order() const = 0;

  virtual bool reduced(std::size_t index) = 0;
  virtual void wait_reduce(std::size_t index) = 0;
  virtual void wait_gather(std::size_t index) = 0;

  /// As in ShardExchange; no effect without a lossy codec.
  virtual void end_pass() {}
  virtual Averager* feedback() { return nullptr; }
};

/// Returns an exchange for these units, whose reductions use `codec`; `shards` are this rank's
/// parts, on the units' device. For gradwire groups it reserves two lanes of the communicator: all
/// ranks must make their exchanges in the same order. For other groups it uses reduce-scatter and
/// all-gather of flat tensors, or all-reduce and all-gather if the backend lacks these. With world
/// size 1 nothing is sent. `trace` records operations and waits; may be null. Throws Exception:
/// unsupported (a codec on another backend's group; a gradwire group with only some units on an
/// accelerator), or as coded_shard_exchange() does.
std::unique_ptr<UnitExchange> unit_exchange(const ProcessGroup& group,
                                            const std::vector<BucketShape>& units,
                                            const std::vector<torch::Tensor>& shards,
                                            const AveragerOptions& codec, TraceRecorder* trace);

}  // namespace gradwire
