#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/recipe/train_config.h"

namespace gradwire {

/// Makes the optimizer that `config` names: libtorch's, Lars or Lamb. Throws
/// Exception(invalid_argument) for invalid settings.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        std::vector<torch::Tensor> parameters);

/// Sets the learning rate of all parameters.
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace gradwire
