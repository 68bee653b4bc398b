#include "gradwire/train/optim/layerwise.h"

#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/data_parallel/distributed_norms.h"

namespace gradwire {
namespace {

/// Upper limit of settings that have none.
constexpr double kUnlimited = std::numeric_limits<double>::max();

void require_within(std::string_view optimizer, std::string_view name, double value, double min,
                    double max) {
  if (value >= min && value <= max) return;
  refuse("{}: {} is {}; it must be from {} to {}", optimizer, name, value, min, max);
}

void require_dense(std::string_view optimizer, const torch::Tensor& gradient) {
  if (gradient.layout() == torch::kStrided) return;
  throw Exception(
      ErrorKind::unsupported,
      fmt::format("{}: a gradient is sparse; construct its layer with sparse = false", optimizer));
}

/// Euclidean norm, as a scalar tensor in at least float32.
torch::Tensor norm_of(const torch::Tensor& tensor) {
  const bool half = tensor.element_size() < 4;
  return torch::linalg_vector_norm(half ? tensor.to(torch::kFloat32) : tensor);
}

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

/// |w| and |g| of the tensor, or of the whole tensor that it is a shard of.
struct Norms {
  torch::Tensor weights;
  torch::Tensor gradient;
};

Norms norms_of(const torch::Tensor& weights, const std::shared_ptr<DistributedNorms>& distributed) {
  if (distributed) return {distributed->norm(weights, 0), distributed->norm(weights, 1)};
  return {norm_of(weights), norm_of(weights.grad())};
}

/// Factor on the learning rate of this tensor.
torch::Tensor trust(const Norms& norms, const LarsOptions& options) {
  const auto& [w, g] = norms;
  const auto ratio = options.trust_coefficient() * w / (g + options.weight_decay() * w);
  return torch::where((w > 0).logical_and(g > 0), ratio, torch::ones_like(ratio));
}

bool adapts(const torch::Tensor& weights, const LarsOptions& options,
            const std::shared_ptr<DistributedNorms>& distributed) {
  return options.adapt_vectors() ||
         (distributed ? distributed->matrix(weights) : weights.dim() > 1);
}

void update(torch::Tensor& weights, const LarsOptions& options,
            const std::shared_ptr<DistributedNorms>& distributed, LarsParamState& state) {
  require_dense("Lars", weights.grad());
  auto step = weights.grad();
  if (adapts(weights, options, distributed)) {
    const auto factor = trust(norms_of(weights, distributed), options).to(weights.scalar_type());
    step = weights.grad().add(weights, options.weight_decay()).mul_(factor);
  }
  step = step * options.lr();
  if (options.momentum() > 0) {
    if (!state.momentum_buffer().defined()) state.momentum_buffer(torch::zeros_like(weights));
    step = state.momentum_buffer().mul_(options.momentum()).add_(step);
  }
  weights.sub_(step);
}

}  // namespace

Lars::Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, LarsOptions defaults)
    : Optimizer(groups, std::make_unique<LarsOptions>(defaults)) {
  require_within("Lars", "lr", defaults.lr(), 0, kUnlimited);
  require_within("Lars", "momentum", defaults.momentum(), 0, 1);
  require_within("Lars", "weight_decay", defaults.weight_decay(), 0, kUnlimited);
  require_within("Lars", "trust_coefficient", defaults.trust_coefficient(), 0, kUnlimited);
}

torch::Tensor Lars::step(LossClosure closure) {
  if (norms_) measure();
  return step_each<LarsOptions>(*this, closure, [&](auto& weights, const auto& options) {
    update(weights, options, norms_, state_of<LarsParamState>(*this, weights));
  });
}

void Lars::measure() {
  norms_->clear();
  step_each<LarsOptions>(*this, nullptr, [&](auto& weights, const auto& /*options*/) {
    norms_->add(weights, 0, weights);
    norms_->add(weights, 1, weights.grad());
  });
  norms_->sum();
}

void Lars::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}

void Lars::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}

void LarsOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust_coefficient);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(adapt_vectors);
}

void LarsOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust_coefficient);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, adapt_vectors);
}

void LarsParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
}

void LarsParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, momentum_buffer);
}

namespace {

/// Returns Adam's direction; updates the moments.
torch::Tensor direction(const torch::Tensor& gradient, const LambOptions& options,
                        LambParamState& state) {
  const auto [beta1, beta2] = options.betas();
  if (!state.exp_avg().defined()) {
    state.exp_avg(torch::zeros_like(gradient));
    state.exp_avg_sq(torch::zeros_like(gradient));
  }
  state.step(state.step() + 1);
  state.exp_avg().mul_(beta1).add_(gradient, 1 - beta1);
  state.exp_avg_sq().mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  const auto steps = static_cast<double>(state.step());
  const auto variance = state.exp_avg_sq() / (1 - std::pow(beta2, steps));
  return (state.exp_avg() / (1 - std::pow(beta1, steps)))
      .div_(variance.sqrt_().add_(options.eps()));
}

torch::Tensor trust(const torch::Tensor& w, const torch::Tensor& r) {
  return torch::where((w > 0).logical_and(r > 0), w / r, torch::ones_like(w));
}

void update(torch::Tensor& weights, const LambOptions& options, LambParamState& state) {
  require_dense("Lamb", weights.grad());
  auto step = direction(weights.grad(), options, state);
  if (options.adapt_vectors() || weights.dim() > 1) {
    step.add_(weights, options.weight_decay());
    step.mul_(trust(norm_of(weights), norm_of(step)).to(weights.scalar_type()));
  }
  weights.sub_(step, options.lr());
}

}  // namespace

Lamb::Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, LambOptions defaults)
    : Optimizer(groups, std::make_unique<LambOptions>(defaults)) {
  const double below_one = std::nextafter(1.0, 0.0);
  require_within("Lamb", "lr", defaults.lr(), 0, kUnlimited);
  require_within("Lamb", "betas[0]", std::get<0>(defaults.betas()), 0, below_one);
  require_within("Lamb", "betas[1]", std::get<1>(defaults.betas()), 0, below_one);
  require_within("Lamb", "eps", defaults.eps(), 0, kUnlimited);
  require_within("Lamb", "weight_decay", defaults.weight_decay(), 0, kUnlimited);
}

torch::Tensor Lamb::step(LossClosure closure) {
  if (norms_) return step_distributed(closure);
  return step_each<LambOptions>(*this, closure, [&](auto& weights, const auto& options) {
    update(weights, options, state_of<LambParamState>(*this, weights));
  });
}

torch::Tensor Lamb::step_distributed(const LossClosure& closure) {
  std::vector<torch::Tensor> steps;
  norms_->clear();
  const auto loss = step_each<LambOptions>(*this, closure, [&](auto& weights, const auto& options) {
    require_dense("Lamb", weights.grad());
    auto step = direction(weights.grad(), options, state_of<LambParamState>(*this, weights));
    if (options.adapt_vectors() || norms_->matrix(weights)) {
      step.add_(weights, options.weight_decay());
    }
    norms_->add(weights, 0, weights);
    norms_->add(weights, 1, step);
    steps.push_back(std::move(step));
  });
  norms_->sum();
  auto step = steps.begin();
  step_each<LambOptions>(*this, nullptr, [&](auto& weights, const auto& options) {
    if (options.adapt_vectors() || norms_->matrix(weights)) {
      const auto ratio = trust(norms_->norm(weights, 0), norms_->norm(weights, 1));
      step->mul_(ratio.to(weights.scalar_type()));
    }
    weights.sub_(*step++, options.lr());
  });
  return loss;
}

void Lamb::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<LambParamState, LambOptions>(archive, *this);
}

void Lamb::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<LambParamState, LambOptions>(archive, *this);
}

void LambOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(adapt_vectors);
}

void LambOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, adapt_vectors);
}

void LambParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void LambParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
}

}  // namespace gradwire
