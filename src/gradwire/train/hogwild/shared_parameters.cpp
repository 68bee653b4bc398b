#include "gradwire/train/hogwild/shared_parameters.h"

#include <algorithm>

#include <c10/util/Type.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/optimizer_state.h"

namespace gradwire {
namespace {

namespace optim = torch::optim;

void check_shared_parameter(const NamedTensor& parameter) {
  const auto& [name, tensor] = parameter;
  if (tensor.scalar_type() != torch::kFloat32 || !tensor.device().is_cpu() ||
      !tensor.is_contiguous()) {
    refuse("hogwild: parameter {} is {}{}{}; threads share contiguous float32 of the CPU", name,
           c10::toString(tensor.scalar_type()), tensor.is_contiguous() ? "" : ", not contiguous",
           tensor.device().is_cpu() ? "" : ", on " + tensor.device().str());
  }
}

[[noreturn]] void refuse_optimizer(const std::string& optimizer) {
  refuse(
      "hogwild: {} cannot be updated without locks; use torch::optim::SGD without momentum or "
      "torch::optim::Adagrad without lr_decay, or DataParallel or Served for other optimizers",
      optimizer);
}

void check_shared_optimizer(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) == nullptr &&
      dynamic_cast<const optim::Adagrad*>(&optimizer) == nullptr) {
    refuse_optimizer(c10::demangle(typeid(optimizer).name()));
  }
}

/// Returns the memory of contiguous float32.
float* floats_of(const torch::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

std::size_t elements_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

}  // namespace

SharedParameters::SharedParameters(const torch::nn::Module& module,
                                   const OptimizerFactory& factory) {
  if (!factory) refuse("hogwild: HogwildOptions::optimizer is missing");
  for (const NamedTensor& parameter : all_parameters(module)) {
    check_shared_parameter(parameter);
    members_.push_back({parameter.name, parameter.tensor, {}});
  }
  optimizer_ = factory(trainable_parameters(module));
  check_shared_optimizer(*optimizer_);
  make_states(*optimizer_);
  for (const auto& group : optimizer_->param_groups()) read_rules(group);
}

void SharedParameters::read_rules(const optim::OptimizerParamGroup& group) {
  Rule rule{.steps = true};
  if (const auto* sgd = dynamic_cast<const optim::SGDOptions*>(&group.options())) {
    if (sgd->momentum() != 0) {
      refuse_optimizer(fmt::format("SGD with momentum {:g}", sgd->momentum()));
    }
    rule.learning_rate = sgd->lr();
    rule.weight_decay = sgd->weight_decay();
  } else {
    const auto& adagrad = dynamic_cast<const optim::AdagradOptions&>(group.options());
    if (adagrad.lr_decay() != 0) {
      refuse_optimizer(fmt::format("Adagrad with lr_decay {:g}", adagrad.lr_decay()));
    }
    rule.learning_rate = adagrad.lr();
    rule.weight_decay = adagrad.weight_decay();
    rule.epsilon = adagrad.eps();
  }
  for (const torch::Tensor& parameter : group.params()) {
    const auto member = std::ranges::find_if(
        members_, [&](const Member& known) { return known.values.is_same(parameter); });
    if (member == members_.end()) {
      refuse("hogwild: the optimizer has a tensor that the factory was not given");
    }
    member->rule = rule;
    for (const NamedState& state : states_of(*optimizer_, parameter)) {
      if (state.name == "sum") member->rule.squares = state.tensor.contiguous();
    }
  }
}

std::vector<torch::Tensor> SharedParameters::parameters_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> own;
  for (const NamedTensor& parameter : all_parameters(module)) own.push_back(parameter.tensor);
  return own;
}

void SharedParameters::share_with(const torch::nn::Module& module) const {
  std::vector<NamedTensor> own = all_parameters(module);
  if (own.size() != members_.size()) {
    refuse("hogwild: a thread's module has {} parameters, and the first one {}", own.size(),
           members_.size());
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    auto& [name, tensor] = own[i];
    const Member& member = members_[i];
    if (name != member.name || tensor.sizes() != member.values.sizes()) {
      refuse("hogwild: a thread's module has parameter {} {}, where the first one has {} {}", name,
             c10::str(tensor.sizes()), member.name, c10::str(member.values.sizes()));
    }
    if (tensor.is_same(member.values)) {
      refuse("hogwild: make() returned the module of another thread; each needs one of its own");
    }
    tensor.set_data(member.values.detach());
  }
}

void SharedParameters::update(std::vector<torch::Tensor>& own, double rate,
                              servers::LockFreeUpdates& updates) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    torch::Tensor gradient = own[i].grad();
    if (!gradient.defined()) continue;
    own[i].mutable_grad().reset();
    const Member& member = members_[i];
    if (!member.rule.steps) continue;
    const double scaled = rate * member.rule.learning_rate;
    if (gradient.is_sparse()) {
      update_rows(member, std::move(gradient), scaled, updates);
    } else {
      update_dense(member, gradient.contiguous(), scaled, updates);
    }
  }
}

void SharedParameters::update_dense(const Member& member, torch::Tensor gradient, double rate,
                                    servers::LockFreeUpdates& updates) {
  const Rule& rule = member.rule;
  const std::size_t count = elements_of(gradient);
  float* const values = floats_of(member.values);
  if (rule.weight_decay != 0) {
    const torch::Tensor read = torch::empty_like(gradient);
    servers::read_shared(values, floats_of(read), count);
    gradient = gradient.add(read, rule.weight_decay);
  }
  if (!rule.squares.defined()) {
    updates.add(values, floats_of(gradient), count, static_cast<float>(-rate));
    return;
  }
  torch::Tensor sums = torch::empty_like(gradient);
  servers::add_squares(floats_of(rule.squares), floats_of(gradient), floats_of(sums), count);
  const torch::Tensor difference = gradient.mul(-rate).div_(sums.sqrt_().add_(rule.epsilon));
  updates.add(values, floats_of(difference), count, 1);
}

void SharedParameters::update_rows(const Member& member, torch::Tensor gradient, double rate,
                                   servers::LockFreeUpdates& updates) {
  const Rule& rule = member.rule;
  if (gradient.sparse_dim() != 1 || rule.weight_decay != 0) {
    refuse("hogwild: the gradient of {} is sparse {}; {}", member.name,
           rule.weight_decay != 0 ? "and it has weight_decay" : "in more than one dimension",
           rule.weight_decay != 0 ? "its rows alone are updated: use weight_decay 0"
                                  : "use rows, or a dense gradient");
  }
  // SGD may add the rows of equal indices one by one.
  if (rule.squares.defined()) gradient = gradient.coalesce();
  const torch::Tensor rows = gradient._indices().contiguous();
  torch::Tensor changes = gradient._values().contiguous();
  if (rows.numel() == 0) return;
  const std::size_t count = elements_of(rows), width = elements_of(changes) / count;
  float* const values = floats_of(member.values);
  if (!rule.squares.defined()) {
    updates.add_rows(values, width, rows.data_ptr<std::int64_t>(), floats_of(changes), count,
                     static_cast<float>(-rate));
    return;
  }
  torch::Tensor sums = torch::empty_like(changes);
  const torch::Tensor squares = changes.pow(2);
  servers::add_squares_to_rows(floats_of(rule.squares), width, rows.data_ptr<std::int64_t>(),
                               floats_of(squares), floats_of(sums), count);
  changes = changes / sums.sqrt_().add_(rule.epsilon);
  updates.add_rows(values, width, rows.data_ptr<std::int64_t>(), floats_of(changes), count,
                   static_cast<float>(-rate));
}

}  // namespace gradwire
