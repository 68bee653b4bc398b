#pragma once

#include <torch/torch.h>

namespace gradwire {

/// What turns the averaged difference between the parameters all ranks had and those they have come
/// to (the outer gradient D) into the parameters that all have next: stochastic gradient descent
/// with Nesterov's momentum (Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1; as PyTorch's
/// SGD has it),
///
///     v = momentum * v + D         outer = outer - rate * (D + momentum * v)
///
/// With a rate of 1 and without momentum, `outer` becomes the mean of the ranks' parameters: local
/// SGD (Stich, ICLR 2019).
struct OuterOptimizer {
  double learning_rate = 1;
  double momentum = 0;

  bool has_velocity() const { return momentum > 0; }

  /// Steps `outer`. `velocity` has its shape, zero at first; untouched without momentum.
  /// `difference` is overwritten.
  void step(torch::Tensor outer, torch::Tensor velocity, torch::Tensor difference) const;
};

}  // namespace gradwire
