#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// One of the states that an optimiser keeps for a parameter, by PyTorch's name.
struct NamedState {
  std::string name;      ///< "exp_avg", "exp_avg_sq", "momentum_buffer", "step", ...
  torch::Tensor tensor;  ///< Live: copying into it changes the optimiser. The parameter's shape, or
                         ///< a scalar of int64 ("step") that is valid as long as the state exists.
};

/// What `optimizer` keeps for `parameter`; nothing before its first step, and nothing for
/// optimisers without states. Knows libtorch's SGD, Adam, AdamW, RMSprop and Adagrad, and Lars and
/// Lamb. Throws Exception(unsupported) for states of another optimiser.
std::vector<NamedState> states_of(torch::optim::Optimizer& optimizer,
                                  const torch::Tensor& parameter);

/// Makes, for all parameters that have none, the states that the optimiser's first step would make:
/// zero, of the parameters' shapes, to be loaded into. Throws Exception(unsupported) for
/// optimisers that states_of() does not know.
void make_states(torch::optim::Optimizer& optimizer);

}  // namespace gradwire
