#include "gradwire/train/federated/local_training.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/shuffle.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {
namespace {

LocalPlan checked(LocalPlan plan) {
  if (plan.epochs < 1 || plan.batch_size < 0 || !(plan.proximal >= 0)) {
    refuse(
        "local training: epochs is {}, batch_size {} and proximal {}; there must be an epoch, and "
        "none may be negative",
        plan.epochs, plan.batch_size, plan.proximal);
  }
  if (!plan.optimizer) refuse("local training: LocalPlan::optimizer is missing");
  return plan;
}

std::vector<NamedTensor> flattenable(const torch::nn::Module& module) {
  auto parameters = trainable_parameters(module);
  if (parameters.empty()) refuse("local training: the module has no trainable parameters");
  const auto& first = parameters.front();
  for (const auto& [name, tensor] : parameters) {
    if (tensor.layout() == torch::kStrided && tensor.dtype() == first.tensor.dtype() &&
        tensor.device() == first.tensor.device()) {
      continue;
    }
    refuse(
        "local training: parameter {} has another type, device or layout than {}; convert the "
        "module with to()",
        name, first.name);
  }
  return parameters;
}

/// Returns true for SGD that only adds: no momentum, and no weight decay.
bool is_plain_sgd(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) == nullptr) return false;
  return std::ranges::all_of(optimizer.param_groups(), [](const auto& group) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    return options.momentum() == 0 && options.weight_decay() == 0;
  });
}

/// The step of torch::optim::SGD, which spends more time around it.
void step_plain_sgd(torch::optim::Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups()) {
    const double rate = group.options().get_lr();
    for (auto& parameter : group.params()) {
      if (parameter.grad().defined()) parameter.add_(parameter.grad(), -rate);
    }
  }
}

std::int64_t batch_of(const LocalPlan& plan, std::int64_t samples) {
  return plan.batch_size == 0 ? samples : plan.batch_size;
}

/// The order of samples in an epoch. Batches of all samples keep them in order: sums do not vary.
void order_samples(std::vector<std::int64_t>& order, const LocalPlan& plan, const LocalWork& work,
                   std::int64_t epoch) {
  std::iota(order.begin(), order.end(), 0);
  if (plan.batch_size == 0) return;
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  Random random(mixed_seed({plan.seed, number(work.round), number(work.client), number(epoch)}));
  shuffle(order, random);
}

}  // namespace

std::int64_t steps_of(const LocalPlan& plan, std::int64_t samples) {
  const std::int64_t batch = batch_of(plan, samples);
  return batch == 0 ? 0 : plan.epochs * ((samples + batch - 1) / batch);
}

LocalTraining::LocalTraining(torch::nn::Module& module, LocalPlan plan)
    : plan_(checked(std::move(plan))),
      named_(flattenable(module)),
      unit_("the federated model", named_, {}) {
  for (const auto& [name, tensor] : named_) parameters_.push_back(tensor);
}

void LocalTraining::load(const torch::Tensor& global) {
  const torch::NoGradGuard no_grad;
  if (global.numel() != flat().numel()) {
    refuse(
        "local training: the global model has {} values, and the module {}; they must be of one "
        "architecture",
        global.numel(), flat().numel());
  }
  flat().copy_(global.view({-1}));
}

LocalResult LocalTraining::run(const LocalWork& work, const Loss& loss) {
  if (work.samples < 1) {
    refuse("local training: client {} has {} samples; leave it out of the round", work.client,
           work.samples);
  }
  if (plan_.proximal > 0) keep_global();
  const auto optimizer = plan_.optimizer(named_);
  const bool is_plain = is_plain_sgd(*optimizer);
  const std::int64_t batch = batch_of(plan_, work.samples);
  const std::int64_t an_epoch = steps_of(plan_, work.samples) / plan_.epochs;
  const std::int64_t most = std::min(plan_.epochs * an_epoch, work.max_steps);
  std::vector<std::int64_t> order(static_cast<std::size_t>(work.samples));
  LocalResult result;
  double sum = 0;
  while (result.steps < most && (!work.goes_on || work.goes_on())) {
    const std::int64_t begin = result.steps % an_epoch * batch;
    if (begin == 0) order_samples(order, plan_, work, result.steps / an_epoch);
    const auto count = static_cast<std::size_t>(std::min(batch, work.samples - begin));
    const torch::Tensor value =
        loss(std::span(order).subspan(static_cast<std::size_t>(begin), count));
    differentiate(value);
    if (is_plain) step_plain_sgd(*optimizer);
    if (!is_plain) optimizer->step();
    sum += value.item<double>() * static_cast<double>(count);
    ++result.steps;
    result.samples += static_cast<std::int64_t>(count);
  }
  if (result.samples > 0) result.mean_loss = sum / static_cast<double>(result.samples);
  return result;
}

void LocalTraining::keep_global() {
  const torch::NoGradGuard no_grad;
  if (!global_.defined()) {
    global_ = torch::empty_like(flat());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      global_views_.push_back(unit_.view(global_, i));
    }
  }
  global_.copy_(flat());
}

/// Gradients are dropped before backward, which then stores its own tensors: cheaper than to set a
/// flat one to zero and to add to it.
void LocalTraining::differentiate(const torch::Tensor& loss) {
  if (loss.requires_grad()) {
    for (const auto& parameter : parameters_) parameter.mutable_grad().reset();
    loss.backward();
  }
  if (plan_.proximal > 0) add_proximal_gradient(parameters_, global_views_, plan_.proximal);
}

}  // namespace gradwire
