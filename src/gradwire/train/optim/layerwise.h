#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/data_parallel/distributed_norms.h"

namespace gradwire {

/// Upper limit of settings that have none.
inline constexpr double kUnlimited = std::numeric_limits<double>::max();

/// Throws Exception(invalid_argument): "Lars: momentum is -1; it must be from 0 to 1".
void require_within(std::string_view optimizer, std::string_view name, double value, double min,
                    double max);

/// Throws Exception(unsupported) for a sparse gradient.
void require_dense(std::string_view optimizer, const torch::Tensor& gradient);

/// Euclidean norm, as a scalar tensor in at least float32.
torch::Tensor norm_of(const torch::Tensor& tensor);

/// Returns the state that `optimizer` keeps for a parameter; creates it if absent.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// Runs `update(parameter, options of its group)` for each parameter that has a gradient, without
/// recording a graph. If `closure` is set, it computes the loss first, as in libtorch's optimizers.
template <class Options, class Update>
torch::Tensor step_each(torch::optim::Optimizer& optimizer,
                        const torch::optim::Optimizer::LossClosure& closure, const Update& update) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (auto& parameter : group.params()) {
      if (parameter.grad().defined()) update(parameter, options);
    }
  }
  return loss;
}

/// Options of Lars. Each can be set per parameter group.
struct LarsOptions : torch::optim::OptimizerCloneableOptions<LarsOptions> {
  explicit LarsOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 0.001;
  /// Apply weight decay and adaptation to vectors (biases, norms' scales) as well.
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

/// LARS: layer-wise adaptive rate scaling. It makes the step of each tensor a fixed fraction of its
/// norm, so that large batches can use high learning rates (You, Gitman, Ginsburg,
/// arXiv:1708.03888, equation 6 and algorithm 1). With gradient g, weights w, weight decay d,
/// momentum m:
///
///     trust = trust_coefficient * |w| / (|g| + d |w|)
///     v = m * v + lr * trust * (g + d * w)
///     w = w - v
///
/// trust is 1 if |w| or |g| is zero. Unless adapt_vectors is set, it is also 1 for vectors, which
/// are not decayed either (common practice; the paper leaves it open). Tensors are stepped
/// independently: several instances, each with some of the parameters, equal one with all of them.
class Lars : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, LarsOptions defaults);
  Lars(std::vector<torch::Tensor> parameters, LarsOptions defaults)
      : Lars({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  /// Declares the parameters to be shards of tensors, which `norms` describes. step() is then
  /// collective.
  void set_distributed_norms(DistributedNorms norms) { norms_ = std::move(norms); }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void measure();

  std::optional<DistributedNorms> norms_;
};

/// Options of Lamb. Each can be set per parameter group.
struct LambOptions : torch::optim::OptimizerCloneableOptions<LambOptions> {
  using Betas = std::tuple<double, double>;

  explicit LambOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  /// Apply weight decay and adaptation to vectors (biases, norms' scales) as well.
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

/// LAMB: Adam with the step of each tensor scaled to its norm, for large batches (You et al., ICLR
/// 2020, arXiv:1904.00962, algorithm 2 with phi(z) = z). With gradient g, weights w, weight decay
/// d:
///
///     m = b1 * m + (1 - b1) * g        v = b2 * v + (1 - b2) * g^2
///     r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + d * w
///     w = w - lr * |w| / |r| * r
///
/// |w| / |r| counts as 1 if either is zero. Unless adapt_vectors is set, it is also 1 for vectors,
/// which are not decayed either (as in the authors' BERT). Tensors are stepped independently:
/// several instances, each with some of the parameters, equal one with all of them.
class Lamb : public torch::optim::Optimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, LambOptions defaults);
  Lamb(std::vector<torch::Tensor> parameters, LambOptions defaults)
      : Lamb({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  /// Declares the parameters to be shards of tensors, which `norms` describes. step() is then
  /// collective.
  void set_distributed_norms(DistributedNorms norms) { norms_ = std::move(norms); }

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  torch::Tensor step_distributed(const LossClosure& closure);

  std::optional<DistributedNorms> norms_;
};

}  // namespace gradwire
