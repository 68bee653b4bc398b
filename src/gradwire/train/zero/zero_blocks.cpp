// Parts of ZeroCore that run during forward and backward.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/train/data_parallel/graph_walk.h"
#include "gradwire/train/zero/zero_core.h"

namespace gradwire {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

const std::vector<std::size_t>& ZeroCore::units_of(const torch::nn::Module& block) {
  auto found = units_of_block_.find(&block);
  if (found == units_of_block_.end()) {
    std::vector<std::size_t> units;
    for (const auto& parameter : block.parameters()) {
      const auto unit = unit_of_.find(parameter.unsafeGetTensorImpl());
      if (unit == unit_of_.end()) continue;
      if (std::ranges::find(units, unit->second) == units.end()) units.push_back(unit->second);
    }
    found = units_of_block_.emplace(&block, std::move(units)).first;
  }
  return found->second;
}

template <class Hook>
void ZeroCore::hook_outputs(const std::vector<torch::Tensor>& outputs, const Hook& hook) {
  for (const auto& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    output.register_hook([hook, alive = std::weak_ptr<ZeroCore*>(self_)](const torch::Tensor&) {
      if (const auto self = alive.lock()) hook(**self);
    });
  }
}

void ZeroCore::before_forward(const torch::nn::Module& module) {
  const Lock lock(mutex_);
  training_ = torch::GradMode::is_enabled();
  if (training_) {
    require_own_module(module);
    require_own_parameters();
  }
  in_forward_ = true;
  in_backward_ = false;
  forward_order_.clear();
  if (size() > 1 && options_.broadcast_buffers && synchronizes() && training_ &&
      module.is_training()) {
    synchronize_buffers();
  }
  if (training_ && consolidated_) release_all();
  if (!options_.forward_awaits || (!training_ && !sharded())) finish();
  if (!sharded()) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (is_root_[unit]) gathers_->prefetch(unit);
  }
  prefetch_after(0);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (is_root_[unit]) gathers_->await(unit);
  }
}

void ZeroCore::prefetch_after(std::size_t position) {
  std::int64_t elements = 0;
  for (auto next = position; next < previous_order_.size(); ++next) {
    const auto& unit = units_[previous_order_[next]];
    elements += unit.elements();
    if (next > position && elements > options_.prefetch_elements) break;
    gathers_->prefetch(previous_order_[next]);
  }
}

void ZeroCore::before_block(const torch::nn::Module& block) {
  const Lock lock(mutex_);
  const auto& units = units_of(block);
  if (sharded() && in_forward_) {
    gather_for_forward(units);
  } else {
    for (const auto unit : units) gathers_->await(unit);
  }
}

void ZeroCore::gather_for_forward(const std::vector<std::size_t>& units) {
  for (const auto unit : units) {
    gathers_->prefetch(unit);
    forward_order_.push_back(unit);
  }
  prefetch_after(forward_order_.size());
  for (const auto unit : units) gathers_->await(unit);
}

void ZeroCore::after_block(const torch::nn::Module& block,
                           const std::vector<torch::Tensor>& outputs) {
  const Lock lock(mutex_);
  const auto& units = units_of(block);
  if (!sharded() || units.empty()) return;
  if (torch::GradMode::is_enabled()) {
    hook_outputs(outputs, [units, position = forward_order_.size()](ZeroCore& core) {
      core.on_output_gradient(units, position);
    });
  }
  // The last block is not released: backward, if any, starts with it. A block whose outputs have no
  // known tensors is not released either, as no hook can tell when backward reaches it.
  const bool last = training_ && forward_order_.size() == previous_order_.size();
  const bool unknown = training_ && outputs.empty();
  if (!in_forward_ || last || unknown || consolidated_) return;
  for (const auto unit : units) {
    gathers_->await(unit);  // Queued again if the same block runs twice in a row.
    gathers_->release(unit);
  }
}

void ZeroCore::after_forward(const std::vector<torch::Tensor>& outputs) {
  const Lock lock(mutex_);
  in_forward_ = false;
  gathers_->start_queued();
  if (!sharded() && training_) require_stepped(outputs);
  finish();  // Units that forward did not use.
  previous_order_ = forward_order_;
  if (!training_) {
    if (!consolidated_) release_all();
    return;
  }
  gradients_->prepare(reduction_order(), synchronizes());
  complete_.assign(units_.size(), false);
  hook_outputs(outputs, [](ZeroCore& core) {
    const Lock backward_lock(core.mutex_);
    core.await_roots();
    core.in_backward_ = true;
    core.gradients_->begin_backward();
  });
}

void ZeroCore::require_stepped(const std::vector<torch::Tensor>& outputs) const {
  const auto awaited = [this](std::size_t unit) {
    return gathers_->is_resident(unit) && !pending_step_[unit];
  };
  std::unordered_set<const torch::autograd::Node*> reached;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (awaited(unit)) continue;
    if (reached.empty()) reached = walk_graph(graph_roots(outputs));
    for (const auto& member : units_[unit].members()) {
      const auto node = torch::autograd::impl::grad_accumulator(member.parameter);
      if (!reached.contains(node.get())) continue;
      throw Exception(
          ErrorKind::invalid_argument,
          fmt::format(
              "rank {}: Zero: forward used '{}' before the pending step had updated it; call "
              "gradwire::await_parameters(its module) first, or set forward_awaits to false",
              rank(), member.name));
    }
  }
}

std::vector<std::size_t> ZeroCore::reduction_order() const {
  std::vector<std::size_t> order;
  const auto add = [&order](std::size_t unit) {
    if (std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  };
  for (auto unit = previous_order_.rbegin(); unit != previous_order_.rend(); ++unit) add(*unit);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_root_[unit]) add(unit);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) add(unit);
  return order;
}

void ZeroCore::on_output_gradient(const std::vector<std::size_t>& units, std::size_t position) {
  const Lock lock(mutex_);
  for (const auto unit : units) gathers_->prefetch(unit);
  // Prefetch the units used before these, except those that backward is done with.
  std::int64_t elements = 0;
  bool some = false;
  for (auto next = position - std::min(position, units.size()); next-- > 0;) {
    const auto unit = next < previous_order_.size() ? previous_order_[next] : units.front();
    if (complete_[unit]) continue;
    elements += units_[unit].elements();
    if (std::exchange(some, true) && elements > options_.prefetch_elements) break;
    gathers_->prefetch(unit);
  }
  for (const auto unit : units) gathers_->await(unit);
}

void ZeroCore::on_complete(std::size_t unit) {
  const Lock lock(mutex_);
  complete_[unit] = true;
  if (sharded() && !is_root_[unit] && !consolidated_) {
    gathers_->start_queued();
    gathers_->release(unit);
  }
}

void ZeroCore::on_backward_end() {
  const Lock lock(mutex_);
  in_backward_ = false;
  release_all();
}

/// A forward without gradients, between the recorded forward and this backward, may have released
/// the root units, and no block's hooks gather them again.
void ZeroCore::await_roots() {
  if (!sharded()) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (is_root_[unit]) gathers_->await(unit);
  }
}

void ZeroCore::release_all() {
  consolidated_ = false;
  gathers_->start_queued();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_->release(unit);
}

}  // namespace gradwire
