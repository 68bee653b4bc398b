#include "gradwire/train/optim/ranger_lars.h"

#include <memory>

#include <torch/serialize/archive.h>

#include "gradwire/train/optim/each_parameter.h"
#include "gradwire/train/optim/rectified_adam.h"

namespace gradwire {

RangerLars::RangerLars(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                       RangerLarsOptions defaults)
    : LayerwiseOptimizer(groups, std::make_unique<RangerLarsOptions>(defaults)) {
  require_adaptive("RangerLars", defaults);
  require_within("RangerLars", "trust_coefficient", defaults.trust_coefficient(), 0, kUnlimited);
  require_within("RangerLars", "lookahead_steps", static_cast<double>(defaults.lookahead_steps()),
                 1, kUnlimited);
  require_within("RangerLars", "lookahead_rate", defaults.lookahead_rate(), 0, 1);
}

bool RangerLars::adapts_vectors(const Options& options) const {
  return static_cast<const RangerLarsOptions&>(options).adapt_vectors();
}

torch::Tensor RangerLars::direction(const torch::Tensor& weights, const Options& options,
                                    bool /*adapts*/) {
  require_dense("RangerLars", weights.grad());
  const auto& ranger = static_cast<const RangerLarsOptions&>(options);
  auto& state = state_of<RangerLarsParamState>(*this, weights);
  if (!state.slow().defined()) state.slow(weights.detach().clone());
  update_moments(weights.grad(), ranger, state);
  return rectified_direction(state.exp_avg(), state.exp_avg_sq(), state.step(), ranger.betas(),
                             ranger.eps());
}

void RangerLars::apply(torch::Tensor& weights, torch::Tensor direction, const Options& options,
                       const Norms* norms) {
  const auto& ranger = static_cast<const RangerLarsOptions&>(options);
  if (norms != nullptr) {
    const auto factor = trust(*norms, ranger.trust_coefficient(), ranger.weight_decay());
    direction.add_(weights, ranger.weight_decay()).mul_(factor.to(weights.scalar_type()));
  }
  weights.sub_(direction, ranger.lr());
  auto& state = state_of<RangerLarsParamState>(*this, weights);
  if (state.step() % ranger.lookahead_steps() != 0) return;
  state.slow().add_(weights - state.slow(), ranger.lookahead_rate());
  weights.copy_(state.slow());
}

void RangerLars::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<RangerLarsParamState, RangerLarsOptions>(archive, *this);
}

void RangerLars::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<RangerLarsParamState, RangerLarsOptions>(archive, *this);
}

void RangerLarsOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust_coefficient);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(adapt_vectors);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lookahead_steps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lookahead_rate);
}

void RangerLarsOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust_coefficient);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, adapt_vectors);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, lookahead_steps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lookahead_rate);
}

void RangerLarsParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(slow);
}

void RangerLarsParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, slow);
}

}  // namespace gradwire
