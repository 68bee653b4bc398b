#pragma once

#include <vector>

#include <torch/torch.h>

#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/data_parallel.h"

namespace gradwire {

/// A model of which every rank has all, and its optimisers: DataParallel's.
///
///     gradwire::ReplicatedModel state(*model.module(), model.core());
///     gradwire::save_checkpoint({.group = group, .model = state}, step, {.folder =
///     "checkpoints"});
class ReplicatedModel final : public Checkpointable {
 public:
  /// With the optimisers that `core` steps, or, if you step your own, with those. All must outlive
  /// this.
  ReplicatedModel(const torch::nn::Module& module, DataParallelCore& core,
                  std::vector<torch::optim::Optimizer*> optimizers = {});

  /// Throws Exception(unsupported) for an optimiser whose states are not known.
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

 private:
  void add(std::vector<TensorPiece>& pieces, const std::string& name, const torch::Tensor& tensor,
           bool common = true);

  const torch::nn::Module& module_;
  DataParallelCore& core_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  /// Tensors that are not row-major in memory, with the copies that were handed out of them.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies_;
};

}  // namespace gradwire
