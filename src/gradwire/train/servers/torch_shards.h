#pragma once

#include <cstddef>
#include <span>
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

struct TorchShardsOptions {
  int server = 0;  ///< This one.
  servers::Placement placement;
  OptimizerFactory optimizer;
  double max_grad_norm = 0;    ///< ServedOptions::max_grad_norm.
  SumOverRanks sum = nullptr;  ///< Over servers, for norms; may be null if nothing is stepped.
};

/// A server's parts of a model, each with an optimizer: shards of ZeRO on a rank that computes no
/// gradients. They are copies: the model stays as it is. Not thread-safe.
class TorchShards final : public servers::ServedShards {
 public:
  /// Throws Exception(invalid_argument) as ShardOptimizer.
  TorchShards(const std::vector<NamedTensor>& parameters, const UnitPlan& plan,
              const TorchShardsOptions& options);

  /// Returns true if the units must step together, by step_all(), which is collective over servers:
  /// with a max_grad_norm or a LayerwiseOptimizer.
  bool needs_all_gradients() const;

  std::size_t units() const override { return units_.size(); }
  LentSpan values(std::size_t unit) override;
  void step(std::size_t unit, const LentSpan& gradient, double rate) override;
  void step_all(std::span<const LentSpan> gradients, double rate) override;
  std::vector<LentSpan> states_of(std::size_t unit) override;

  /// The states as pieces of a checkpoint.
  std::vector<TensorPiece> pieces();

 private:
  double clip(const std::vector<torch::Tensor>& gradients) const;
  torch::Tensor tensor_of(std::size_t unit, const LentSpan& gradient) const;
  void step_scaled(std::size_t unit, const torch::Tensor& gradient, double rate, double factor);

  double max_grad_norm_;
  SumOverRanks sum_;
  std::vector<FlatUnit> units_;  ///< Never moves: optimizers refer to units.
  std::vector<ShardOptimizer> optimizers_;
};

}  // namespace gradwire
