#pragma once

#include <cstddef>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/servers/server.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/shard_optimizer.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

/// A server's parts of a model, each with an optimizer: shards of ZeRO on a rank that computes no
/// gradients. They are copies: the model stays as it is. Not thread-safe.
class TorchShards final : public servers::ServedShards {
 public:
  /// The parts of server `index`. Throws Exception(invalid_argument) as ShardOptimizer, and for
  /// optimizers that need norms over all servers.
  TorchShards(const std::vector<NamedTensor>& parameters, const UnitPlan& plan, int index,
              const servers::Placement& placement, const OptimizerFactory& factory);

  std::size_t units() const override { return units_.size(); }
  LentSpan values(std::size_t unit) override;
  void step(std::size_t unit, const LentSpan& gradient, double rate) override;
  std::vector<LentSpan> states() override;

  /// The states as pieces of a checkpoint.
  std::vector<TensorPiece> pieces();

 private:
  std::vector<FlatUnit> units_;  ///< Never moves: optimizers refer to units.
  std::vector<ShardOptimizer> optimizers_;
};

}  // namespace gradwire
