#pragma once

#include <torch/torch.h>

namespace gradwire {

/// Optimizer of the outer parameters. The outer gradient D is the averaged difference between the
/// outer parameters and those the ranks reached. It uses stochastic gradient descent with Nesterov
/// momentum (Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1), as in PyTorch's SGD:
///
///     v = momentum * v + D         outer = outer - rate * (D + momentum * v)
///
/// With a rate of 1 and no momentum, `outer` becomes the mean of the ranks' parameters: local SGD
/// (Stich, ICLR 2019).
struct OuterOptimizer {
  double learning_rate = 1;
  double momentum = 0;

  bool has_velocity() const { return momentum > 0; }

  /// Steps `outer`. `velocity` has the same shape and starts at zero; it is unused without
  /// momentum. `difference` is overwritten.
  void step(torch::Tensor outer, torch::Tensor velocity, torch::Tensor difference) const;
};

}  // namespace gradwire
