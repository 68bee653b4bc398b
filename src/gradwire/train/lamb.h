#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/spread_norms.h"

namespace gradwire {

/// The settings of Lamb. Each can be given for a group of parameters alone.
struct LambOptions : torch::optim::OptimizerCloneableOptions<LambOptions> {
  using Betas = std::tuple<double, double>;

  explicit LambOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  /// Vectors (biases, norms' scales): whether they are decayed and adapted like weights.
  TORCH_ARG(bool, adapt_vectors) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct LambParamState : torch::optim::OptimizerCloneableParamState<LambParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Adam with the step of each tensor scaled to its norm, for large batches (You et al., ICLR 2020,
/// arXiv:1904.00962, algorithm 2 with phi(z) = z): with gradient g, weights w, weight decay d,
///
///     m = b1 * m + (1 - b1) * g        v = b2 * v + (1 - b2) * g^2
///     r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + d * w
///     w = w - lr * |w| / |r| * r
///
/// |w| / |r| counts as 1 where either is zero, and for vectors, which are not decayed either (as in
/// the authors' BERT), unless adapt_vectors. Every tensor is stepped by itself, so that several of
/// these, each with some of the parameters, do what one with all of them does.
class Lamb : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, LambOptions defaults);
  Lamb(std::vector<torch::Tensor> parameters, LambOptions defaults)
      : Lamb({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  /// The parameters are pieces of tensors that are spread over ranks, of which `norms` knows. From
  /// now on step() is collective.
  void spread(SpreadNorms norms) { spread_ = std::move(norms); }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  torch::Tensor step_spread(const LossClosure& closure);

  std::optional<SpreadNorms> spread_;
};

}  // namespace gradwire
