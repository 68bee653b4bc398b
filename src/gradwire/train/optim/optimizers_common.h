#pragma once

#include <limits>
#include <string_view>

#include <torch/torch.h>

namespace gradwire {

/// Upper limit of settings that have none.
inline constexpr double kUnlimited = std::numeric_limits<double>::max();

/// Throws Exception(invalid_argument): "Lars: momentum is -1; it must be from 0 to 1".
void require_within(std::string_view optimizer, std::string_view name, double value, double min,
                    double max);

/// Throws Exception(unsupported) for a sparse gradient.
void require_dense(std::string_view optimizer, const torch::Tensor& gradient);

/// Euclidean norm, as a scalar tensor in at least float32.
torch::Tensor norm_of(const torch::Tensor& tensor);

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

}  // namespace gradwire
