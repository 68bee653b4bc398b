#include "gradwire/train/optim/rectified_adam.h"

#include <cmath>
#include <memory>

#include <torch/serialize/archive.h>

#include "gradwire/train/optim/each_parameter.h"

namespace gradwire {

torch::Tensor rectified_direction(const torch::Tensor& exp_avg, const torch::Tensor& exp_avg_sq,
                                  std::int64_t step, const RAdamOptions::Betas& betas, double eps) {
  const auto [beta1, beta2] = betas;
  const auto t = static_cast<double>(step);
  const double power = std::pow(beta2, t);
  const double limit = 2 / (1 - beta2) - 1;
  const double length = limit - 2 * t * power / (1 - power);
  const auto momentum = exp_avg / (1 - std::pow(beta1, t));
  if (length <= 5) return momentum;
  const double rectification =
      std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
  return momentum.mul(rectification * std::sqrt(1 - power)).div_(exp_avg_sq.sqrt().add_(eps));
}

RAdam::RAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups, RAdamOptions defaults)
    : Optimizer(groups, std::make_unique<RAdamOptions>(defaults)) {
  require_adaptive("RAdam", defaults);
}

torch::Tensor RAdam::step(LossClosure closure) {
  return step_each<RAdamOptions>(*this, closure, [&](auto& weights, const auto& options) {
    require_dense("RAdam", weights.grad());
    auto& state = state_of<RAdamParamState>(*this, weights);
    update_moments(with_decay(weights, options.weight_decay()), options, state);
    weights.sub_(rectified_direction(state.exp_avg(), state.exp_avg_sq(), state.step(),
                                     options.betas(), options.eps()),
                 options.lr());
  });
}

void RAdam::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<RAdamParamState, RAdamOptions>(archive, *this);
}

void RAdam::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<RAdamParamState, RAdamOptions>(archive, *this);
}

void RAdamOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void RAdamOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void RAdamParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void RAdamParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
}

}  // namespace gradwire
