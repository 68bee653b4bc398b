#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire::recipe {

/// Returns the factor on the learning rate at step `step` (from 0) of `total`, with
/// `steps_per_epoch`. The rate warms up linearly to 1 (Goyal et al., arXiv:1706.02677, section
/// 2.2). Then it is constant, or follows half a cosine down to final_fraction (Loshchilov, Hutter,
/// arXiv:1608.03983, equation 5, without restart).
double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total,
                            std::int64_t steps_per_epoch);

/// The group that a parameter is in: 0 with the settings of the optimizer itself, i with those of
/// groups[i - 1], the first that matches the name.
std::size_t group_of(const OptimizerConfig& config, const std::string& parameter);

/// Returns the number of parameters in each group. Throws Exception(invalid_argument) that names a
/// group which has none.
std::vector<std::size_t> group_sizes(const OptimizerConfig& config,
                                     const std::vector<std::string>& parameters);

/// Returns the learning rate of each group for a global batch of `batch_size` samples, scaled as
/// `optimizer` says, times `factor`. Linear scaling: Goyal et al., section 2.1. Square-root scaling
/// keeps the variance of a step (Krizhevsky, arXiv:1404.5997, section 5) and is what LAMB requires
/// (You et al., ICLR 2020, section 4.3).
std::vector<double> learning_rates(const OptimizerConfig& optimizer, std::int64_t batch_size,
                                   double factor);

/// Makes the optimizer that `config` names, libtorch's or gradwire's, with all groups, of which
/// some may have none of these parameters. Throws Exception(invalid_argument) for invalid settings.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        const std::vector<NamedTensor>& parameters);

/// make_optimizer() as a factory. `config` must outlive it.
OptimizerFactory optimizer_factory(const OptimizerConfig& config);

/// Sets the learning rate of each group.
void set_learning_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates);

}  // namespace gradwire::recipe
