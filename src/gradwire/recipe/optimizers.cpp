#include "gradwire/recipe/optimizers.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "gradwire/base/refuse.h"
#include "gradwire/train/optim/layerwise.h"

namespace gradwire::recipe {

double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total,
                            std::int64_t steps_per_epoch) {
  const double warmup = schedule.warmup_epochs * static_cast<double>(steps_per_epoch);
  const auto now = static_cast<double>(step);
  if (now < warmup) return (now + 1) / std::ceil(warmup);
  if (schedule.decay != "cosine") return 1;
  const double rest = std::max(1.0, static_cast<double>(total) - warmup);
  const double done = std::min(1.0, (now - warmup) / rest);
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return schedule.final_fraction + (1 - schedule.final_fraction) * cosine;
}

double scaled_learning_rate(const OptimizerConfig& optimizer, std::int64_t batch_size) {
  if (optimizer.scaling == "none") return optimizer.learning_rate;
  const double times =
      static_cast<double>(batch_size) / static_cast<double>(optimizer.base_batch_size);
  return optimizer.learning_rate * (optimizer.scaling == "sqrt" ? std::sqrt(times) : times);
}

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
    refuse("optimizer.nesterov needs optimizer.momentum above 0");
  }
  torch::optim::SGDOptions options(config.learning_rate);
  options.momentum(config.momentum).nesterov(config.nesterov);
  options.weight_decay(config.weight_decay);
  return std::make_unique<torch::optim::SGD>(std::move(parameters), options);
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace gradwire::recipe
