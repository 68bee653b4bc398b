#include "gradwire/recipe/optimizers.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/ranger_lars.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"

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

std::size_t group_of(const OptimizerConfig& config, const std::string& parameter) {
  const auto matches = [&](const ParameterGroup& group) {
    return std::ranges::any_of(group.match, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0;
    });
  };
  const auto found = std::ranges::find_if(config.groups, matches);
  if (found == config.groups.end()) return 0;
  return 1 + static_cast<std::size_t>(found - config.groups.begin());
}

namespace {

/// Names for an error, of which there may be hundreds.
std::string first_and_last(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  if (names.size() <= 2 * kShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, ..., {}", fmt::join(names.begin(), names.begin() + kShown, ", "),
                     fmt::join(names.end() - kShown, names.end(), ", "));
}

}  // namespace

std::vector<std::size_t> group_sizes(const OptimizerConfig& config,
                                     const std::vector<std::string>& parameters) {
  std::vector<std::size_t> sizes(1 + config.groups.size());
  for (const std::string& parameter : parameters) ++sizes[group_of(config, parameter)];
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    if (sizes[i + 1] > 0) continue;
    refuse(
        "optimizer.groups[{}]: no parameter matches \"{}\", or an earlier group has all that do; "
        "the model has {}",
        i, fmt::join(config.groups[i].match, "\", \""), first_and_last(parameters));
  }
  return sizes;
}

namespace {

/// Those of the optimizer itself, then those of its groups.
std::vector<const OptimizerConfig*> settings_of(const OptimizerConfig& config) {
  std::vector<const OptimizerConfig*> all{&config};
  for (const ParameterGroup& group : config.groups) all.push_back(&group.settings);
  return all;
}

double scaled_learning_rate(const OptimizerConfig& optimizer, std::int64_t batch_size) {
  if (optimizer.scaling == "none") return optimizer.learning_rate;
  const double times =
      static_cast<double>(batch_size) / static_cast<double>(optimizer.base_batch_size);
  return optimizer.learning_rate * (optimizer.scaling == "sqrt" ? std::sqrt(times) : times);
}

/// Makes the options of an optimizer with moments, whose settings have the same names.
template <class Options>
Options adaptive_options(const OptimizerConfig& config) {
  Options options(config.learning_rate);
  options.betas(std::make_tuple(config.beta1, config.beta2));
  options.eps(config.epsilon).weight_decay(config.weight_decay);
  return options;
}

RangerLarsOptions ranger_options(const OptimizerConfig& config) {
  auto options = adaptive_options<RangerLarsOptions>(config);
  options.trust_coefficient(config.trust_coefficient);
  options.lookahead_steps(config.lookahead_steps).lookahead_rate(config.lookahead_rate);
  return options;
}

torch::optim::AdagradOptions adagrad_options(const OptimizerConfig& config) {
  torch::optim::AdagradOptions options(config.learning_rate);
  options.eps(config.epsilon).weight_decay(config.weight_decay);
  return options;
}

LarsOptions lars_options(const OptimizerConfig& config) {
  LarsOptions options(config.learning_rate);
  options.momentum(config.momentum).trust_coefficient(config.trust_coefficient);
  options.weight_decay(config.weight_decay);
  return options;
}

torch::optim::SGDOptions sgd_options(const OptimizerConfig& config) {
  torch::optim::SGDOptions options(config.learning_rate);
  options.momentum(config.momentum).nesterov(config.nesterov);
  options.weight_decay(config.weight_decay);
  return options;
}

/// `options_of` makes the options of a group from its settings.
template <class Optimizer, class OptionsOf>
std::unique_ptr<torch::optim::Optimizer> make_with_groups(
    const OptimizerConfig& config, const std::vector<NamedTensor>& parameters,
    const OptionsOf& options_of) {
  using Options = std::invoke_result_t<OptionsOf, const OptimizerConfig&>;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const OptimizerConfig* settings : settings_of(config)) {
    groups.emplace_back(std::vector<torch::Tensor>(),
                        std::make_unique<Options>(options_of(*settings)));
  }
  for (const auto& [name, tensor] : parameters) {
    groups[group_of(config, name)].params().push_back(tensor);
  }
  return std::make_unique<Optimizer>(std::move(groups), options_of(config));
}

}  // namespace

std::vector<double> learning_rates(const OptimizerConfig& optimizer, std::int64_t batch_size,
                                   double factor) {
  std::vector<double> rates;
  for (const OptimizerConfig* settings : settings_of(optimizer)) {
    rates.push_back(scaled_learning_rate(*settings, batch_size) * factor);
  }
  return rates;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerConfig& config, const std::vector<NamedTensor>& parameters) {
  using torch::optim::Adam, torch::optim::AdamOptions;
  if (config.name == "adam") {
    return make_with_groups<Adam>(config, parameters, adaptive_options<AdamOptions>);
  }
  if (config.name == "lamb") {
    return make_with_groups<Lamb>(config, parameters, adaptive_options<LambOptions>);
  }
  if (config.name == "radam") {
    return make_with_groups<RAdam>(config, parameters, adaptive_options<RAdamOptions>);
  }
  if (config.name == "yogi") {
    return make_with_groups<Yogi>(config, parameters, adaptive_options<YogiOptions>);
  }
  if (config.name == "ranger_lars") {
    return make_with_groups<RangerLars>(config, parameters, ranger_options);
  }
  if (config.name == "adagrad") {
    return make_with_groups<torch::optim::Adagrad>(config, parameters, adagrad_options);
  }
  if (config.name == "lars") return make_with_groups<Lars>(config, parameters, lars_options);
  return make_with_groups<torch::optim::SGD>(config, parameters, sgd_options);
}

OptimizerFactory optimizer_factory(const OptimizerConfig& config) {
  return [&config](const std::vector<NamedTensor>& parameters) {
    return make_optimizer(config, parameters);
  };
}

void set_learning_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  auto rate = rates.begin();
  for (auto& group : optimizer.param_groups()) group.options().set_lr(*rate++);
}

}  // namespace gradwire::recipe
