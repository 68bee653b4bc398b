#include "gradwire/host/servers/builtin_shards.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {

BuiltinShards::BuiltinShards(std::vector<at::Tensor> values, BuiltinOptimizer optimizer)
    : optimizer_(std::move(optimizer)) {
  for (at::Tensor& each : values) parts_.push_back({.values = std::move(each)});
}

LentSpan BuiltinShards::values(std::size_t unit) {
  return lend(parts_[unit].values, {"Served", "parameters", 0});
}

void BuiltinShards::step(std::size_t unit, const LentSpan& lent, double rate) {
  const at::NoGradGuard no_grad;
  Part& part = parts_[unit];
  at::Tensor gradient = tensor_over(lent, at::kCPU);
  ++part.steps;
  if (optimizer_.weight_decay != 0) {
    gradient = gradient.add(part.values, optimizer_.weight_decay);
  }
  const double lr = rate * optimizer_.lr;
  if (optimizer_.name == "sgd") return step_sgd(part, std::move(gradient), lr);
  if (optimizer_.name == "adam") return step_adam(part, gradient, lr);
  step_adagrad(part, gradient, lr);
}

void BuiltinShards::step_sgd(Part& part, at::Tensor gradient, double lr) const {
  if (optimizer_.momentum != 0) {
    if (part.steps == 1) {
      part.first = gradient.clone();
    } else {
      part.first.mul_(optimizer_.momentum).add_(gradient, 1 - optimizer_.dampening);
    }
    gradient = optimizer_.nesterov ? gradient.add(part.first, optimizer_.momentum) : part.first;
  }
  part.values.add_(gradient, -lr);
}

void BuiltinShards::step_adam(Part& part, const at::Tensor& gradient, double lr) const {
  if (part.steps == 1) {
    part.first = at::zeros_like(part.values);
    part.second = at::zeros_like(part.values);
  }
  const auto steps = static_cast<double>(part.steps);
  part.first.lerp_(gradient, 1 - optimizer_.beta1);
  part.second.mul_(optimizer_.beta2).addcmul_(gradient, gradient, 1 - optimizer_.beta2);
  const double step_size = lr / (1 - std::pow(optimizer_.beta1, steps));
  const double correction = std::sqrt(1 - std::pow(optimizer_.beta2, steps));
  const at::Tensor denominator = (part.second.sqrt() / correction).add_(optimizer_.eps);
  part.values.addcdiv_(part.first, denominator, -step_size);
}

void BuiltinShards::step_adagrad(Part& part, const at::Tensor& gradient, double lr) const {
  if (part.steps == 1) {
    part.first = at::full_like(part.values, optimizer_.initial_accumulator_value);
  }
  const auto earlier = static_cast<double>(part.steps - 1);
  part.first.addcmul_(gradient, gradient, 1);
  const at::Tensor root = part.first.sqrt().add_(optimizer_.eps);
  part.values.addcdiv_(gradient, root, -lr / (1 + earlier * optimizer_.lr_decay));
}

}  // namespace gradwire
