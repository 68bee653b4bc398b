#include "gradwire/train/servers/torch_shards.h"

#include <string>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/tensor_span.h"

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

SumOverRanks refuse_sums() {
  return [](std::vector<double>) -> std::vector<double> {
    refuse(
        "Served: Lars and Lamb need the norms of whole tensors, of which each server has a part; "
        "use another optimizer, or Zero");
  };
}

}  // namespace

TorchShards::TorchShards(const std::vector<NamedTensor>& parameters, const UnitPlan& plan,
                         int index, const servers::Placement& placement,
                         const OptimizerFactory& factory) {
  const auto slices = plan.units.size() * static_cast<std::size_t>(placement.members);
  units_.reserve(slices);
  optimizers_.reserve(slices);
  for (const UnitPlan::Unit& unit : plan.units) {
    for (int member = 0; member < placement.members; ++member) {
      FlatUnit& added =
          units_.emplace_back(unit.name, copies_of(parameters, unit.members),
                              FlatUnitOptions{.rank = member * placement.servers + index,
                                              .ranks = placement.parts_of_unit(),
                                              .sharded = true,
                                              .type = {}});
      ShardOptimizer& optimizer =
          optimizers_.emplace_back(added, factory, /*per_element=*/false, refuse_sums());
      if (optimizer.sums_over_ranks()) refuse_sums()({});
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

std::vector<LentSpan> TorchShards::states() {
  std::vector<LentSpan> spans;
  for (const TensorPiece& piece : pieces()) {
    spans.push_back(lend(piece.data, {"Served", "optimizer states", 0}));
  }
  return spans;
}

void TorchShards::step(std::size_t unit, const LentSpan& gradient, double rate) {
  const ScaledRates scaled(optimizers_[unit].optimizer(), rate);
  const torch::Tensor tensor = torch::from_blob(
      gradient.data, {static_cast<std::int64_t>(gradient.count)}, units_[unit].shard().options());
  optimizers_[unit].step(tensor, 1, nullptr);
}

}  // namespace gradwire
