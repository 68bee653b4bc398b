#include "gradwire/recipe/optimizers.h"

#include <tuple>

#include "gradwire/base/error.h"
#include "gradwire/train/optim/lamb.h"
#include "gradwire/train/optim/lars.h"

namespace gradwire {
namespace {

using Made = std::unique_ptr<torch::optim::Optimizer>;

/// Makes Adam or Lamb, whose settings have the same names.
template <class Optimizer, class Options>
Made make_adaptive(const OptimizerConfig& config, std::vector<torch::Tensor> parameters) {
  Options options(config.learning_rate);
  options.betas(std::make_tuple(config.beta1, config.beta2));
  options.eps(config.epsilon).weight_decay(config.weight_decay);
  return std::make_unique<Optimizer>(std::move(parameters), options);
}

Made make_lars(const OptimizerConfig& config, std::vector<torch::Tensor> parameters) {
  LarsOptions options(config.learning_rate);
  options.momentum(config.momentum).trust_coefficient(config.trust_coefficient);
  options.weight_decay(config.weight_decay);
  return std::make_unique<Lars>(std::move(parameters), options);
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        std::vector<torch::Tensor> parameters) {
  if (config.name == "adam") {
    return make_adaptive<torch::optim::Adam, torch::optim::AdamOptions>(config,
                                                                        std::move(parameters));
  }
  if (config.name == "lamb") {
    return make_adaptive<Lamb, LambOptions>(config, std::move(parameters));
  }
  if (config.name == "lars") return make_lars(config, std::move(parameters));
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
