#include "gradwire/train/optimizers.h"

#include <tuple>

#include "gradwire/base/error.h"

namespace gradwire {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        std::vector<torch::Tensor> parameters) {
  if (config.name == "adam") {
    torch::optim::AdamOptions options(config.learning_rate);
    options.betas(std::make_tuple(config.beta1, config.beta2));
    options.eps(config.epsilon).weight_decay(config.weight_decay);
    return std::make_unique<torch::optim::Adam>(std::move(parameters), options);
  }
  if (config.nesterov && config.momentum == 0) {
    throw Exception(ErrorKind::invalid_argument,
                    "optimizer.nesterov needs optimizer.momentum above 0");
  }
  torch::optim::SGDOptions options(config.learning_rate);
  options.momentum(config.momentum).nesterov(config.nesterov);
  options.weight_decay(config.weight_decay);
  return std::make_unique<torch::optim::SGD>(std::move(parameters), options);
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace gradwire
