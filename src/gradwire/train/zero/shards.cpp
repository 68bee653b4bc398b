#include "gradwire/train/zero/shards.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire {

Shards::Shards(ProcessGroup group, std::string who, const ShardsOptions& options, std::size_t units)
    : group_(std::move(group)), errors_(group_, std::move(who)), options_(options) {
  units_.reserve(units);
}

Shards::~Shards() {
  for (auto& unit : units_) unit.unpoison();
}

FlatUnit& Shards::add(const std::string& name, const std::vector<NamedTensor>& members,
                      bool is_root) {
  is_root_.push_back(is_root);
  return units_.emplace_back(name, members,
                             FlatUnitOptions{.rank = on_servers() ? 0 : group_->getRank(),
                                             .ranks = parts(),
                                             .sharded = options_.stage == 3,
                                             .type = options_.parameters});
}

void Shards::allocate_gradients() {
  gradients_ = std::make_unique<ShardedGradients>(units_, parts(),
                                                  /*keep_all=*/options_.stage == 1);
}

std::vector<step::StepUnit> Shards::step_units() const {
  std::vector<step::StepUnit> units;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units.push_back({.elements = static_cast<std::size_t>(units_[unit].elements()),
                     .gradients = units_[unit].members().size(),
                     .is_root = is_root_[unit]});
  }
  return units;
}

std::vector<exchange::UnitShape> Shards::shapes() const {
  std::vector<exchange::UnitShape> shapes;
  for (const auto& unit : units_) {
    const auto count = static_cast<std::size_t>(unit.elements());
    shapes.push_back({.count = count,
                      .type = data_type_of(unit.shard().scalar_type()).value_or(DataType::float32),
                      .skip_compression = static_cast<std::size_t>(unit.used_elements()) <
                                          options_.codec_min_elements,
                      .tensors = {{unit.name(), 0, count, 1}}});
  }
  return shapes;
}

std::vector<at::Tensor> Shards::samples() const {
  std::vector<at::Tensor> shards;
  for (const auto& unit : units_) shards.push_back(unit.shard());
  return shards;
}

void Shards::exchange_by(exchange::Exchange& exchange) {
  if (!on_servers() && !exchange.traits().averages) gradients_->set_scale(1.0 / group_->getSize());
}

step::StepHost::Gradients Shards::gradients(std::size_t unit) {
  const auto name = errors_.name("gradients");
  if (on_servers()) return {lend_on_device(gradients_->complete(unit), name), {}};
  const auto [buffer, mean] = gradients_->prepare_reduction(unit);
  return {lend_on_device(buffer, name), lend_on_device(mean, name)};
}

step::StepHost::Parameters Shards::whole_parameters(std::size_t unit) {
  units_[unit].allocate();
  const auto name = errors_.name("parameters");
  if (on_servers()) return {{}, lend_on_device(units_[unit].flat(), name)};
  return {lend_on_device(units_[unit].shard(), name), lend_on_device(units_[unit].flat(), name)};
}

void Shards::poison() {
  for (auto& unit : units_) unit.poison();
}

ShardOptimizers::ShardOptimizers(ProcessGroup group, Shards& shards, ShardOptimizersOptions options)
    : group_(std::move(group)), shards_(shards), options_(std::move(options)) {}

void ShardOptimizers::add(FlatUnit& unit) {
  if (!options_.offload_to.empty() && !unit.shard().is_cpu()) {
    refuse(
        "Zero: offload_optimizer supports only parameters on the CPU, but '{}' is on {}; leave it "
        "out",
        unit.members().front().name, unit.shard().device().str());
  }
  optimizers_.emplace_back(unit, options_.factory, options_.is_per_element,
                           [group = group_](std::vector<double> values) {
                             return sum_over_ranks(*group, std::move(values));
                           });
  optimizers_.back().offload(options_.offload_to);
}

bool ShardOptimizers::step(std::size_t unit, double factor) {
  auto gradient = shards_.gradients().take(unit);
  if (!gradient.defined()) return false;
  optimizers_[unit].step(std::move(gradient), factor, before());
  return true;
}

bool ShardOptimizers::communicates() const {
  return std::ranges::any_of(optimizers_, [](auto& each) { return each.sums_over_ranks(); });
}

std::vector<torch::optim::Optimizer*> ShardOptimizers::optimizers() {
  std::vector<torch::optim::Optimizer*> all;
  for (auto& each : optimizers_) all.push_back(&each.optimizer());
  return all;
}

std::vector<TensorPiece> ShardOptimizers::states(bool make) {
  std::vector<TensorPiece> found;
  for (auto& optimizer : optimizers_) {
    for (auto& state : optimizer.states(make)) found.push_back(std::move(state));
  }
  return found;
}

std::size_t ShardOptimizers::state_bytes() {
  std::size_t bytes = 0;
  for (auto& optimizer : optimizers_) bytes += optimizer.state_bytes();
  return bytes;
}

}  // namespace gradwire
