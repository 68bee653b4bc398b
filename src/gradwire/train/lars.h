#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/spread_norms.h"

namespace gradwire {

/// The settings of Lars. Each can be given for a group of parameters alone.
struct LarsOptions : torch::optim::OptimizerCloneableOptions<LarsOptions> {
  explicit LarsOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 0.001;
  /// Vectors (biases, norms' scales): whether they are decayed and adapted like weights.
  TORCH_ARG(bool, adapt_vectors) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct LarsParamState : torch::optim::OptimizerCloneableParamState<LarsParamState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Layer-wise adaptive rate scaling, which makes the step of each tensor a given part of its norm,
/// so that large batches can take large rates (You, Gitman, Ginsburg, arXiv:1708.03888, equation 6
/// and algorithm 1): with gradient g, weights w, weight decay d, momentum m,
///
///     trust = trust_coefficient * |w| / (|g| + d |w|)
///     v = m * v + lr * trust * (g + d * w)
///     w = w - v
///
/// trust is 1 where |w| or |g| is zero, and for vectors, which are not decayed either (as usual:
/// the paper leaves it open), unless adapt_vectors. Every tensor is stepped by itself, so that
/// several of these, each with some of the parameters, do what one with all of them does.
class Lars : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, LarsOptions defaults);
  Lars(std::vector<torch::Tensor> parameters, LarsOptions defaults)
      : Lars({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  /// The parameters are pieces of tensors that are spread over ranks, of which `norms` knows. From
  /// now on step() is collective.
  void spread(SpreadNorms norms) { spread_ = std::move(norms); }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void measure();

  std::optional<SpreadNorms> spread_;
};

}  // namespace gradwire
