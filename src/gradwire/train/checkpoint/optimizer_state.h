#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// A state that an optimizer keeps for a parameter, by PyTorch's name.
struct NamedState {
  std::string name;  ///< "exp_avg", "exp_avg_sq", "momentum_buffer", "step", ...
  /// A reference: copying into it changes the optimizer. It has the shape of the parameter, or is
  /// an int64 scalar ("step") that is valid as long as the state exists.
  torch::Tensor tensor;
};

/// Returns the states that `optimizer` keeps for `parameter`. Empty before its first step, and for
/// optimizers without state. Supports libtorch's SGD, Adam, AdamW, RMSprop and Adagrad, and
/// gradwire's optimizers. Throws Exception(unsupported) for states of another optimizer.
std::vector<NamedState> states_of(torch::optim::Optimizer& optimizer,
                                  const torch::Tensor& parameter);

/// Creates the states that the optimizer's first step would create, for all parameters without
/// state: the values that they start with, to load into. Throws Exception(unsupported) for
/// optimizers that states_of() does not support.
void make_states(torch::optim::Optimizer& optimizer);

}  // namespace gradwire
