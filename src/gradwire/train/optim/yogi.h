#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Options of Yogi. Each can be set per parameter group.
struct YogiOptions : torch::optim::OptimizerCloneableOptions<YogiOptions> {
  using Betas = std::tuple<double, double>;

  explicit YogiOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-3;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct YogiParamState : torch::optim::OptimizerCloneableParamState<YogiParamState> {
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Yogi: Adam whose second moment moves by at most (1 - b2) g^2 a step, so that the rate does not
/// grow fast after large gradients (Zaheer et al., NeurIPS 2018, algorithm 2). With gradient g, to
/// which weight decay d adds d * w:
///
///     m = b1 * m + (1 - b1) * g        v = v - (1 - b2) * sign(v - g^2) * g^2
///     w = w - lr * m / (sqrt(v) + eps)
///
/// m starts at 0, and v at eps^2, as that of the federated optimizers FedAdam and FedYogi (Reddi et
/// al., ICLR 2021, arXiv:2003.00295, algorithm 2, where eps is called tau). No moment is corrected
/// for its start, in either paper. Element-wise.
class Yogi : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Yogi(const std::vector<torch::optim::OptimizerParamGroup>& groups, YogiOptions defaults);
  Yogi(std::vector<torch::Tensor> parameters, YogiOptions defaults)
      : Yogi({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace gradwire
