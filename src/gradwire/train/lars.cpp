#include "gradwire/train/lars.h"

#include <limits>

#include <torch/serialize/archive.h>

#include "gradwire/train/optimizers_common.h"

namespace gradwire {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();

/// By how much the rate of this tensor is multiplied.
torch::Tensor trust(const torch::Tensor& weights, const torch::Tensor& gradient,
                    const LarsOptions& options) {
  const auto w = norm_of(weights);
  const auto g = norm_of(gradient);
  const auto ratio = options.trust_coefficient() * w / (g + options.weight_decay() * w);
  return torch::where((w > 0).logical_and(g > 0), ratio, torch::ones_like(ratio));
}

void update(torch::Tensor& weights, const LarsOptions& options, LarsParamState& state) {
  require_dense("Lars", weights.grad());
  auto step = weights.grad();
  if (options.adapt_vectors() || weights.dim() > 1) {
    const auto factor = trust(weights, weights.grad(), options).to(weights.scalar_type());
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
  require_within("Lars", "lr", defaults.lr(), 0, kAny);
  require_within("Lars", "momentum", defaults.momentum(), 0, 1);
  require_within("Lars", "weight_decay", defaults.weight_decay(), 0, kAny);
  require_within("Lars", "trust_coefficient", defaults.trust_coefficient(), 0, kAny);
}

torch::Tensor Lars::step(LossClosure closure) {
  return step_each<LarsOptions>(*this, closure, [&](auto& weights, const auto& options) {
    update(weights, options, state_of<LarsParamState>(*this, weights));
  });
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
