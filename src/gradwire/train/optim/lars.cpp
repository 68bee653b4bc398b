#include "gradwire/train/optim/lars.h"

#include <torch/serialize/archive.h>

#include "gradwire/train/optim/optimizers_common.h"

namespace gradwire {
namespace {

/// |w| and |g| of the tensor, or of the whole tensor that it is a shard of.
struct Norms {
  torch::Tensor weights;
  torch::Tensor gradient;
};

Norms norms_of(const torch::Tensor& weights, const std::optional<DistributedNorms>& distributed) {
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
            const std::optional<DistributedNorms>& distributed) {
  return options.adapt_vectors() ||
         (distributed ? distributed->matrix(weights) : weights.dim() > 1);
}

void update(torch::Tensor& weights, const LarsOptions& options,
            const std::optional<DistributedNorms>& distributed, LarsParamState& state) {
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

}  // namespace gradwire
