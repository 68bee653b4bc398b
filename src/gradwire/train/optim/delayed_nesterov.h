#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Options of DelayedNesterov.
struct DelayedNesterovOptions : torch::optim::OptimizerCloneableOptions<DelayedNesterovOptions> {
  explicit DelayedNesterovOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(std::int64_t, every) = 1;  ///< N.

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct DelayedNesterovParamState
    : torch::optim::OptimizerCloneableParamState<DelayedNesterovParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, momentum_buffer);
  TORCH_ARG(torch::Tensor, difference_sum);
};

/// The outer optimizer of asynchronous local steps: Nesterov momentum that changes at every N-th
/// difference only, and a gradient step at each (Liu et al., arXiv:2401.09135, algorithm 3 with
/// c = 0). With difference D, rate r, momentum m:
///
///     s = s + D
///     at every N-th difference:   v = m * v + s / N,  s = 0,  w = w - r * (D / N + m * v)
///     at the others:              w = w - r * D / N
///
/// With N = 1 it is SGD with Nesterov momentum, DiLoCo's outer optimizer. Element-wise.
class DelayedNesterov : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  DelayedNesterov(std::vector<torch::Tensor> parameters, DelayedNesterovOptions options);

  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace gradwire
