#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Makes the optimizer of some of the parameters; called once for each unit. The optimizer must
/// treat each parameter independently (SGD, Adam, LAMB, ...: no norm over all gradients).
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> parameters)>;

/// Called before each unit's optimizer steps, to set its learning rate.
using BeforeStep = std::function<void(torch::optim::Optimizer&)>;

}  // namespace gradwire
