#include "gradwire/train/servers/served_local_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/train/optim/delayed_nesterov.h"

namespace gradwire {
namespace {

void check(const step::LocalStepsConfig& steps) {
  step::check_local_steps(steps);
  const auto refuse_key = [](const char* key) {
    refuse("local_steps.{} is incompatible with servers; leave one of them out", key);
  };
  if (steps.fragments > 1) refuse_key("fragments");
  if (steps.overlap_steps > 0) refuse_key("overlap_steps");
  if (steps.mixing > 0) refuse_key("mixing");
}

/// A step of mode sync has the mean of the workers' differences. Otherwise each is a step, for
/// which servers count the workers, or their groups: their own process group has servers only.
std::int64_t differences_of_a_step(const ServedOptions& options) {
  if (options.servers.mode == "sync") return 1;
  if (options.servers.groups > 0) return options.servers.groups;
  const auto divided = bootstrap::servers_job(bootstrap::Job::from_environment());
  return divided ? divided->workers : options.process_group->getSize();
}

OptimizerFactory outer_optimizer(const step::LocalStepsConfig& steps, std::int64_t every) {
  const DelayedNesterovOptions options =
      DelayedNesterovOptions(steps.outer_learning_rate).momentum(steps.outer_momentum).every(every);
  return [options](const std::vector<NamedTensor>& parameters) {
    std::vector<torch::Tensor> tensors;
    for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
    return std::make_unique<DelayedNesterov>(std::move(tensors), options);
  };
}

}  // namespace

/// The outer parameters as this worker has them. Their gradients are the differences.
class ServedLocalSteps::Outer final : public torch::nn::Module {
 public:
  explicit Outer(const std::vector<NamedTensor>& own) {
    for (const NamedTensor& parameter : own) {
      tensors.push_back(parameter.tensor.detach().clone().set_requires_grad(true));
      // Names of a module's own parameters have no dots.
      std::string name = parameter.name;
      std::ranges::replace(name, '.', '/');
      register_parameter(name, tensors.back());
    }
  }

  std::vector<torch::Tensor> tensors;
};

ServedLocalSteps::ServedLocalSteps(std::vector<NamedTensor> parameters, ServedOptions options,
                                   const step::LocalStepsConfig& steps)
    : steps_(steps), outer_(std::make_shared<Outer>(parameters)) {
  check(steps);
  if (!options.process_group) {
    refuse("ServedLocalSteps: no process_group; pass {{.process_group = gradwire::init()}}");
  }
  if (options.max_grad_norm > 0) {
    refuse(
        "ServedLocalSteps: max_grad_norm {} would clip differences, which are no gradients; clip "
        "the gradients before a step of your own optimizer",
        options.max_grad_norm);
  }
  if (!options.servers.units.empty()) {
    refuse("ServedLocalSteps: units are of gradients, and local steps send differences; omit them");
  }
  options.codec = steps.codec;
  options.optimizer = outer_optimizer(steps, differences_of_a_step(options));
  for (NamedTensor& parameter : parameters) own_.push_back(std::move(parameter.tensor));
  served_ = std::make_unique<ServedModule>(*outer_, options, /*sequential=*/false);
  follow();
}

ServedLocalSteps::~ServedLocalSteps() = default;

void ServedLocalSteps::step() {
  const double wanted = std::round(share_ * static_cast<double>(steps_.steps));
  if (static_cast<double>(++since_push_) >= std::max(1.0, wanted)) flush();
}

void ServedLocalSteps::flush() {
  if (std::exchange(since_push_, 0) == 0) return;
  std::vector<torch::Tensor> differences;
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < own_.size(); ++i) {
      differences.push_back(outer_->tensors[i] - own_[i]);
    }
  }
  served_->before_forward(*outer_);
  served_->after_forward({});
  torch::autograd::backward(outer_->tensors, differences);
  served_->step();
  served_->finish();
  follow();
}

void ServedLocalSteps::follow() {
  if (since_push_ > 0) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i) own_[i].copy_(outer_->tensors[i]);
}

void ServedLocalSteps::synchronize() {
  flush();
  served_->synchronize();
  follow();
}

void ServedLocalSteps::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const torch::Tensor own = own_[i].clone();
    own_[i].copy_(outer_->tensors[i]);
    outer_->tensors[i].copy_(own);
  }
}

}  // namespace gradwire
