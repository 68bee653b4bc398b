#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace torch::nn {
class Module;
}

namespace gradwire {

/// A parameter or buffer with its full name ("layers.0.weight").
struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

/// The module's parameters that require a gradient, in order of registration. A parameter
/// registered under several names appears once, under the first.
std::vector<NamedTensor> trainable_parameters(const torch::nn::Module& module);

/// All parameters, trainable or not, each once.
std::vector<NamedTensor> all_parameters(const torch::nn::Module& module);

/// Returns the name of the first parameter that requires a gradient, but for which `known` returns
/// false; "" if there is none.
std::string first_unknown_trainable(const torch::nn::Module& module,
                                    const std::function<bool(const torch::Tensor&)>& known);

/// The module's buffers, each once.
std::vector<NamedTensor> all_buffers(const torch::nn::Module& module);

}  // namespace gradwire
