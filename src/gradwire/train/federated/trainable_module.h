#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/torch.h>

namespace gradwire {

/// A module, and how it is trained and evaluated.
struct TrainableModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
  /// The mean loss of a batch.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)> loss;
  /// It draws random numbers, as dropout does: libtorch's default generator is seeded for each
  /// client. That generator is the process's, so that only one thread may train.
  bool draws_random_numbers = false;
  /// Returns the mean loss of a batch and stores the gradients of all parameters in grad(), faster
  /// than autograd. Null: autograd does it.
  std::function<torch::Tensor(const torch::Tensor& inputs, const torch::Tensor& targets)>
      differentiate = nullptr;
};

/// How well a model classifies samples.
struct Evaluated {
  std::int64_t samples = 0;  ///< Targets: of text, its characters.
  std::int64_t correct = 0;
  double loss = 0;  ///< Sum over the samples.

  double accuracy() const {
    return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
  double mean_loss() const { return samples > 0 ? loss / static_cast<double>(samples) : 0; }
};

}  // namespace gradwire
