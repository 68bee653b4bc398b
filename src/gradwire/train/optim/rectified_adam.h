#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Options of RAdam. Each can be set per parameter group.
struct RAdamOptions : torch::optim::OptimizerCloneableOptions<RAdamOptions> {
  using Betas = std::tuple<double, double>;

  explicit RAdamOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct RAdamParamState : torch::optim::OptimizerCloneableParamState<RAdamParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// RAdam: Adam whose adaptive rate is rectified by the variance that it has in the first steps, so
/// that no warm-up is needed (Liu et al., ICLR 2020, arXiv:1908.03265, algorithm 2). With gradient
/// g, to which weight decay d adds d * w:
///
///     m = b1 * m + (1 - b1) * g        v = b2 * v + (1 - b2) * g^2
///     R = 2 / (1 - b2) - 1             R_t = R - 2 * t * b2^t / (1 - b2^t)
///     r = sqrt((R_t - 4) * (R_t - 2) * R / ((R - 4) * (R - 2) * R_t))
///     u = m / (1 - b1^t) * (R_t > 5 ? r * sqrt(1 - b2^t) / (sqrt(v) + eps) : 1)
///     w = w - lr * u
///
/// The bound of 5 is that of the authors' program and of PyTorch's torch.optim.RAdam, whose steps
/// these are; the paper has 4, near which r is close to zero. Element-wise.
class RAdam : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  RAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups, RAdamOptions defaults);
  RAdam(std::vector<torch::Tensor> parameters, RAdamOptions defaults)
      : RAdam({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

/// Returns u, from the moments after step t = `step`.
torch::Tensor rectified_direction(const torch::Tensor& exp_avg, const torch::Tensor& exp_avg_sq,
                                  std::int64_t step, const RAdamOptions::Betas& betas, double eps);

}  // namespace gradwire
