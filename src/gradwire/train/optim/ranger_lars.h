#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/optim/layerwise.h"

namespace gradwire {

/// Options of RangerLars. Each can be set per parameter group.
struct RangerLarsOptions : torch::optim::OptimizerCloneableOptions<RangerLarsOptions> {
  using Betas = std::tuple<double, double>;

  explicit RangerLarsOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 1;
  /// Apply weight decay and adaptation to vectors (biases, norms' scales) as well.
  TORCH_ARG(bool, adapt_vectors) = false;
  TORCH_ARG(std::int64_t, lookahead_steps) = 5;  ///< k.
  TORCH_ARG(double, lookahead_rate) = 0.5;       ///< a.

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct RangerLarsParamState : torch::optim::OptimizerCloneableParamState<RangerLarsParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);
  TORCH_ARG(torch::Tensor, slow);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// RangerLARS: RAdam, LARS and Lookahead together. RAdam's direction u (rectified_adam.h, without
/// weight decay) takes the place of the gradient in LARS (layerwise.h), without LARS' momentum. So
/// the step of each tensor is a fraction of its norm. Every k-th step, Lookahead moves the slow
/// weights s, which start as w, towards w, and w is set to them (Zhang et al., NeurIPS 2019,
/// arXiv:1907.08610, algorithm 1):
///
///     trust = trust_coefficient * |w| / (|u| + d * |w|)
///     w = w - lr * trust * (u + d * w)
///     every k-th step: s = s + a * (w - s),  w = s
///
/// trust is 1 if |w| or |u| is zero. Unless adapt_vectors is set, it is also 1 for vectors, which
/// are not decayed either. With lookahead_rate 1, w is never set back.
class RangerLars : public LayerwiseOptimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  RangerLars(const std::vector<torch::optim::OptimizerParamGroup>& groups,
             RangerLarsOptions defaults);
  RangerLars(std::vector<torch::Tensor> parameters, RangerLarsOptions defaults)
      : RangerLars({torch::optim::OptimizerParamGroup(std::move(parameters))},
                   std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  bool adapts_vectors(const Options& options) const override;
  torch::Tensor direction(const torch::Tensor& weights, const Options& options,
                          bool adapts) override;
  void apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
             const Norms* norms) override;
};

}  // namespace gradwire
