#include "gradwire/train/optim/yogi.h"

#include <memory>

#include <torch/serialize/archive.h>

#include "gradwire/train/optim/each_parameter.h"

namespace gradwire {
namespace {

void step_yogi(torch::Tensor& weights, const YogiOptions& options, YogiParamState& state) {
  require_dense("Yogi", weights.grad());
  const auto gradient = with_decay(weights, options.weight_decay());
  const auto [beta1, beta2] = options.betas();
  if (!state.exp_avg().defined()) {
    state.exp_avg(torch::zeros_like(gradient));
    state.exp_avg_sq(torch::full_like(gradient, options.eps() * options.eps()));
  }
  state.exp_avg().mul_(beta1).add_(gradient, 1 - beta1);
  const auto square = gradient * gradient;
  state.exp_avg_sq().addcmul_((state.exp_avg_sq() - square).sign_(), square, beta2 - 1);
  weights.addcdiv_(state.exp_avg(), state.exp_avg_sq().sqrt().add_(options.eps()), -options.lr());
}

}  // namespace

Yogi::Yogi(const std::vector<torch::optim::OptimizerParamGroup>& groups, YogiOptions defaults)
    : Optimizer(groups, std::make_unique<YogiOptions>(defaults)) {
  require_adaptive("Yogi", defaults);
}

torch::Tensor Yogi::step(LossClosure closure) {
  return step_each<YogiOptions>(*this, closure, [&](auto& weights, const auto& options) {
    step_yogi(weights, options, state_of<YogiParamState>(*this, weights));
  });
}

void Yogi::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<YogiParamState, YogiOptions>(archive, *this);
}

void Yogi::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<YogiParamState, YogiOptions>(archive, *this);
}

void YogiOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void YogiOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void YogiParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void YogiParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
}

}  // namespace gradwire
