#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <torch/torch.h>

#include "gradwire/base/refuse.h"

/// Parts that optimizers of gradwire share. For their sources only.
namespace gradwire {

/// Upper limit of settings that have none.
inline constexpr double kUnlimited = std::numeric_limits<double>::max();

inline void require_within(std::string_view optimizer, std::string_view name, double value,
                           double min, double max) {
  if (value >= min && value <= max) return;
  refuse("{}: {} is {}; it must be from {} to {}", optimizer, name, value, min, max);
}

/// Checks the settings of an optimizer with moments.
template <class Options>
void require_adaptive(std::string_view optimizer, const Options& options) {
  const double below_one = std::nextafter(1.0, 0.0);
  require_within(optimizer, "lr", options.lr(), 0, kUnlimited);
  require_within(optimizer, "betas[0]", std::get<0>(options.betas()), 0, below_one);
  require_within(optimizer, "betas[1]", std::get<1>(options.betas()), 0, below_one);
  require_within(optimizer, "eps", options.eps(), 0, kUnlimited);
  require_within(optimizer, "weight_decay", options.weight_decay(), 0, kUnlimited);
}

inline void require_dense(std::string_view optimizer, const torch::Tensor& gradient) {
  if (gradient.layout() == torch::kStrided) return;
  throw Exception(
      ErrorKind::unsupported,
      fmt::format("{}: a gradient is sparse; construct its layer with sparse = false", optimizer));
}

/// Returns the state that `optimizer` keeps for a parameter; creates it if absent.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// Runs `update(parameter, options of its group)` for each parameter that has a gradient, without
/// recording a graph. If `closure` is set, it computes the loss first, as in libtorch's optimizers.
template <class Options, class Update>
torch::Tensor step_each(torch::optim::Optimizer& optimizer,
                        const torch::optim::Optimizer::LossClosure& closure, const Update& update) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (auto& parameter : group.params()) {
      if (parameter.grad().defined()) update(parameter, options);
    }
  }
  return loss;
}

/// The gradient, and weight_decay times the weights.
inline torch::Tensor with_decay(const torch::Tensor& weights, double weight_decay) {
  return weight_decay == 0 ? weights.grad() : weights.grad().add(weights, weight_decay);
}

/// Adam's moments: the running means of gradients and of their squares (Kingma, Ba,
/// arXiv:1412.6980, algorithm 1). Counts the step.
template <class State, class Options>
void update_moments(const torch::Tensor& gradient, const Options& options, State& state) {
  const auto [beta1, beta2] = options.betas();
  if (!state.exp_avg().defined()) {
    state.exp_avg(torch::zeros_like(gradient));
    state.exp_avg_sq(torch::zeros_like(gradient));
  }
  state.step(state.step() + 1);
  state.exp_avg().mul_(beta1).add_(gradient, 1 - beta1);
  state.exp_avg_sq().mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
}

}  // namespace gradwire
