#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

/// A whole module of one rank and its optimizers, as pieces of a checkpoint.
class ModuleState final : public Checkpointable {
 public:
  /// All must outlive this.
  ModuleState(const torch::nn::Module& module, std::vector<torch::optim::Optimizer*> optimizers)
      : module_(module), optimizers_(std::move(optimizers)) {}

  /// Throws Exception(unsupported) for an optimizer whose states are not supported.
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

 private:
  void add(std::vector<TensorPiece>& pieces, const std::string& name, const torch::Tensor& tensor,
           bool common = true);

  const torch::nn::Module& module_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  /// Tensors that are not row-major in memory, and the copies returned for them.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies_;
};

}  // namespace gradwire
