#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

class DistributedNorms;

/// Base of the optimizers that scale the step of each tensor to the tensor's norm. Tensors are
/// stepped independently: several instances, each with some of the parameters, equal one with all
/// of them.
class LayerwiseOptimizer : public torch::optim::Optimizer {
 public:
  /// Declares the parameters to be shards of tensors, which `norms` describes. step() is then
  /// collective.
  void set_distributed_norms(std::shared_ptr<DistributedNorms> norms) { norms_ = std::move(norms); }

  torch::Tensor step(LossClosure closure = nullptr) override;

 protected:
  using Options = torch::optim::OptimizerOptions;
  using Optimizer::Optimizer;

  /// The norms of a whole tensor and of its direction: scalars in at least float32.
  struct Norms {
    torch::Tensor weights, direction;
  };

  /// The factor on the learning rate of LARS: coefficient * |w| / (|g| + weight_decay * |w|), or 1
  /// if |w| or |g| is zero.
  static torch::Tensor trust(const Norms& norms, double coefficient, double weight_decay);

 private:
  /// Returns true if vectors are scaled too.
  virtual bool adapts_vectors(const Options& options) const = 0;

  /// Returns the step before it is scaled, which may be the gradient itself; updates the moments.
  /// `adapts`: apply() will get norms.
  virtual torch::Tensor direction(const torch::Tensor& weights, const Options& options,
                                  bool adapts) = 0;

  /// Scales the step and takes it. Null: the tensor is a vector that is not scaled.
  virtual void apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
                     const Norms* norms) = 0;

  torch::Tensor step_distributed(const LossClosure& closure);
  bool adapts(const torch::Tensor& weights, const Options& options) const;

  std::shared_ptr<DistributedNorms> norms_;
};

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
/// are not decayed either (common practice; the paper leaves it open).
class Lars : public LayerwiseOptimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, LarsOptions defaults);
  Lars(std::vector<torch::Tensor> parameters, LarsOptions defaults)
      : Lars({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  bool adapts_vectors(const Options& options) const override;
  torch::Tensor direction(const torch::Tensor& weights, const Options& options,
                          bool adapts) override;
  void apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
             const Norms* norms) override;
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
/// which are not decayed either (as in the authors' BERT).
class Lamb : public LayerwiseOptimizer {
 public:
  /// Throws Exception(invalid_argument) for settings out of range.
  Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, LambOptions defaults);
  Lamb(std::vector<torch::Tensor> parameters, LambOptions defaults)
      : Lamb({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

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
