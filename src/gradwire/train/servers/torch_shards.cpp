#include "gradwire/train/servers/torch_shards.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/optim/clipping.h"

namespace gradwire {
namespace {

/// Copies, so that the units do not take the model's parameters for their own.
std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& parameters,
                                   const std::vector<std::size_t>& members) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> copies;
  for (const std::size_t member : members) {
    const auto& [name, tensor] = parameters[member];
    copies.push_back({name, tensor.detach().clone().set_requires_grad(true)});
  }
  return copies;
}

/// Multiplies the learning rates of all groups for as long as it lives.
class ScaledRates {
 public:
  ScaledRates(torch::optim::Optimizer& optimizer, double factor) : optimizer_(optimizer) {
    if (factor == 1) return;
    for (auto& group : optimizer_.param_groups()) {
      before_.push_back(group.options().get_lr());
      group.options().set_lr(factor * before_.back());
    }
  }
  ~ScaledRates() {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      optimizer_.param_groups()[i].options().set_lr(before_[i]);
    }
  }
  ScaledRates(const ScaledRates&) = delete;
  ScaledRates& operator=(const ScaledRates&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<double> before_;
};

}  // namespace

TorchShards::TorchShards(const std::vector<NamedTensor>& parameters, const UnitPlan& plan,
                         const TorchShardsOptions& options)
    : max_grad_norm_(options.max_grad_norm), sum_(options.sum) {
  const servers::Placement& placement = options.placement;
  const auto slices = plan.units.size() * static_cast<std::size_t>(placement.members);
  units_.reserve(slices);
  optimizers_.reserve(slices);
  for (const UnitPlan::Unit& unit : plan.units) {
    for (int member = 0; member < placement.members; ++member) {
      FlatUnit& added =
          units_.emplace_back(unit.name, copies_of(parameters, unit.members),
                              FlatUnitOptions{.rank = member * placement.servers + options.server,
                                              .ranks = placement.parts_of_unit(),
                                              .sharded = true,
                                              .type = {}});
      optimizers_.emplace_back(added, options.optimizer, /*per_element=*/false, sum_);
      added.release();
    }
  }
}

LentSpan TorchShards::values(std::size_t unit) {
  return lend(units_[unit].shard(), {"Served", "parameters", 0});
}

std::vector<TensorPiece> TorchShards::pieces() {
  std::vector<TensorPiece> all;
  for (ShardOptimizer& optimizer : optimizers_) {
    for (TensorPiece& piece : optimizer.states(/*make=*/true)) all.push_back(std::move(piece));
  }
  return all;
}

std::vector<LentSpan> TorchShards::states_of(std::size_t unit) {
  std::vector<LentSpan> spans;
  for (const TensorPiece& piece : optimizers_[unit].states(/*make=*/true)) {
    spans.push_back(lend(piece.data, {"Served", "optimizer states", 0}));
  }
  return spans;
}

bool TorchShards::needs_all_gradients() const {
  return max_grad_norm_ > 0 ||
         std::ranges::any_of(optimizers_, [](const auto& each) { return each.sums_over_ranks(); });
}

void TorchShards::step(std::size_t unit, const LentSpan& gradient, double rate) {
  step_scaled(unit, tensor_of(unit, gradient), rate, 1);
}

void TorchShards::step_all(std::span<const LentSpan> gradients, double rate) {
  std::vector<torch::Tensor> tensors;
  for (std::size_t unit = 0; unit < gradients.size(); ++unit) {
    tensors.push_back(tensor_of(unit, gradients[unit]));
  }
  const double factor = clip(tensors);
  for (std::size_t unit = 0; unit < tensors.size(); ++unit) {
    step_scaled(unit, tensors[unit], rate, factor);
  }
}

/// Returns the factor on the gradients. Squares are added as ZeRO adds them: over the units here,
/// then over the servers.
double TorchShards::clip(const std::vector<torch::Tensor>& gradients) const {
  if (max_grad_norm_ == 0) return 1;
  double squares = 0;
  for (const torch::Tensor& gradient : gradients) squares += square_of(gradient);
  return clipping_factor(std::sqrt(sum_({squares}).front()), max_grad_norm_);
}

torch::Tensor TorchShards::tensor_of(std::size_t unit, const LentSpan& gradient) const {
  return torch::from_blob(gradient.data, {static_cast<std::int64_t>(gradient.count)},
                          units_[unit].shard().options());
}

void TorchShards::step_scaled(std::size_t unit, const torch::Tensor& gradient, double rate,
                              double factor) {
  const ScaledRates scaled(optimizers_[unit].optimizer(), rate);
  optimizers_[unit].step(gradient, factor, nullptr);
}

}  // namespace gradwire
