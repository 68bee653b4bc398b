#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Returns the factor on the learning rate at step `step` (from 0) of `total`, with
/// `steps_per_epoch`. The rate warms up linearly to 1 (Goyal et al., arXiv:1706.02677, section
/// 2.2). Then it is constant, or follows half a cosine down to final_fraction (Loshchilov, Hutter,
/// arXiv:1608.03983, equation 5, without restart).
double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total,
                            std::int64_t steps_per_epoch);

/// Returns the learning rate for a global batch of `batch_size` samples, scaled as `optimizer`
/// says. Linear scaling: Goyal et al., section 2.1. Square-root scaling keeps the variance of a
/// step (Krizhevsky, arXiv:1404.5997, section 5) and is what LAMB requires (You et al., ICLR 2020,
/// section 4.3).
double scaled_learning_rate(const OptimizerConfig& optimizer, std::int64_t batch_size);

/// Makes the optimizer that `config` names: libtorch's, Lars or Lamb. Throws
/// Exception(invalid_argument) for invalid settings.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        std::vector<torch::Tensor> parameters);

/// Sets the learning rate of all parameters.
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace gradwire::recipe
