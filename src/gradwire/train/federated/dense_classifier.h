#pragma once

#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Loss and gradients of a classifier of fully connected layers with ReLU between them and
/// log-softmax after the last, computed without autograd: with batches of ten samples, autograd's
/// bookkeeping takes as long as the arithmetic. Not thread-safe.
class DenseClassifier {
 public:
  /// `parameters`: weight and bias of each layer, in order; float on the CPU. They are shared with
  /// the module. Throws Exception(invalid_argument) for other shapes.
  explicit DenseClassifier(std::vector<torch::Tensor> parameters);

  /// Returns the mean negative log-likelihood of `targets` (N, int64), a scalar, and replaces the
  /// gradients of all parameters. `inputs`: (N, ...), of as many values a sample as the first layer
  /// takes.
  torch::Tensor differentiate(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  struct Layer {
    torch::Tensor weight, bias;
    torch::Tensor weight_gradient, bias_gradient;
  };
  /// Returns the log-probabilities, and leaves the input of each layer in `inputs`.
  torch::Tensor forward(std::vector<torch::Tensor>& inputs) const;

  std::vector<Layer> layers_;
};

}  // namespace gradwire
