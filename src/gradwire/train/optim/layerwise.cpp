#include "gradwire/train/optim/layerwise.h"

#include <cmath>

#include <torch/serialize/archive.h>

#include "gradwire/train/data_parallel/distributed_norms.h"
#include "gradwire/train/optim/each_parameter.h"

namespace gradwire {
namespace {

/// Euclidean norm, as a scalar tensor in at least float32.
torch::Tensor norm_of(const torch::Tensor& tensor) {
  const bool half = tensor.element_size() < 4;
  return torch::linalg_vector_norm(half ? tensor.to(torch::kFloat32) : tensor);
}

torch::Tensor ratio_or_one(const torch::Tensor& w, const torch::Tensor& r,
                           const torch::Tensor& ratio) {
  return torch::where((w > 0).logical_and(r > 0), ratio, torch::ones_like(ratio));
}

}  // namespace

bool LayerwiseOptimizer::adapts(const torch::Tensor& weights, const Options& options) const {
  return adapts_vectors(options) || (norms_ ? norms_->matrix(weights) : weights.dim() > 1);
}

torch::Tensor LayerwiseOptimizer::step(LossClosure closure) {
  if (norms_) return step_distributed(closure);
  return step_each<Options>(*this, closure, [&](auto& weights, const auto& options) {
    if (!adapts(weights, options)) {
      apply(weights, direction(weights, options, false), options, nullptr);
      return;
    }
    const auto taken = direction(weights, options, true);
    const Norms norms{norm_of(weights), norm_of(taken)};
    apply(weights, taken, options, &norms);
  });
}

torch::Tensor LayerwiseOptimizer::step_distributed(const LossClosure& closure) {
  std::vector<torch::Tensor> directions;
  norms_->clear();
  const auto loss = step_each<Options>(*this, closure, [&](auto& weights, const auto& options) {
    auto& taken = directions.emplace_back(direction(weights, options, adapts(weights, options)));
    norms_->add(weights, 0, weights);
    norms_->add(weights, 1, taken);
  });
  norms_->sum();
  auto taken = directions.begin();
  step_each<Options>(*this, nullptr, [&](auto& weights, const auto& options) {
    const Norms norms{norms_->norm(weights, 0), norms_->norm(weights, 1)};
    apply(weights, std::move(*taken++), options, adapts(weights, options) ? &norms : nullptr);
  });
  return loss;
}

torch::Tensor LayerwiseOptimizer::trust(const Norms& norms, double coefficient,
                                        double weight_decay) {
  const auto& [w, g] = norms;
  return ratio_or_one(w, g, coefficient * w / (g + weight_decay * w));
}

Lars::Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, LarsOptions defaults)
    : LayerwiseOptimizer(groups, std::make_unique<LarsOptions>(defaults)) {
  require_within("Lars", "lr", defaults.lr(), 0, kUnlimited);
  require_within("Lars", "momentum", defaults.momentum(), 0, 1);
  require_within("Lars", "weight_decay", defaults.weight_decay(), 0, kUnlimited);
  require_within("Lars", "trust_coefficient", defaults.trust_coefficient(), 0, kUnlimited);
}

bool Lars::adapts_vectors(const Options& options) const {
  return static_cast<const LarsOptions&>(options).adapt_vectors();
}

torch::Tensor Lars::direction(const torch::Tensor& weights, const Options& /*options*/,
                              bool /*adapts*/) {
  require_dense("Lars", weights.grad());
  return weights.grad();
}

void Lars::apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
                 const Norms* norms) {
  const auto& lars = static_cast<const LarsOptions&>(options);
  if (norms != nullptr) {
    const auto factor = trust(*norms, lars.trust_coefficient(), lars.weight_decay());
    direction = direction.add(weights, lars.weight_decay()).mul_(factor.to(weights.scalar_type()));
  }
  direction = direction * lars.lr();
  if (lars.momentum() > 0) {
    auto& state = state_of<LarsParamState>(*this, weights);
    if (!state.momentum_buffer().defined()) state.momentum_buffer(torch::zeros_like(weights));
    direction = state.momentum_buffer().mul_(lars.momentum()).add_(direction);
  }
  weights.sub_(direction);
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

Lamb::Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, LambOptions defaults)
    : LayerwiseOptimizer(groups, std::make_unique<LambOptions>(defaults)) {
  require_adaptive("Lamb", defaults);
}

bool Lamb::adapts_vectors(const Options& options) const {
  return static_cast<const LambOptions&>(options).adapt_vectors();
}

torch::Tensor Lamb::direction(const torch::Tensor& weights, const Options& options, bool adapts) {
  require_dense("Lamb", weights.grad());
  const auto& lamb = static_cast<const LambOptions&>(options);
  auto& state = state_of<LambParamState>(*this, weights);
  update_moments(weights.grad(), lamb, state);
  const auto [beta1, beta2] = lamb.betas();
  const auto steps = static_cast<double>(state.step());
  const auto variance = state.exp_avg_sq() / (1 - std::pow(beta2, steps));
  auto adam =
      (state.exp_avg() / (1 - std::pow(beta1, steps))).div_(variance.sqrt_().add_(lamb.eps()));
  if (adapts) adam.add_(weights, lamb.weight_decay());
  return adam;
}

void Lamb::apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
                 const Norms* norms) {
  if (norms != nullptr) {
    const auto& [w, r] = *norms;
    direction.mul_(ratio_or_one(w, r, w / r).to(weights.scalar_type()));
  }
  weights.sub_(direction, static_cast<const LambOptions&>(options).lr());
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
