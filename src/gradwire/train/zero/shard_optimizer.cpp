#include "gradwire/train/zero/shard_optimizer.h"

#include <algorithm>

#include <c10/util/Type.h>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/memory/mapped_tensor.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/train/checkpoint/optimizer_state.h"
#include "gradwire/train/data_parallel/distributed_norms.h"
#include "gradwire/train/optim/delayed_nesterov.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"

namespace gradwire {
namespace {

namespace optim = torch::optim;

template <class... Kinds>
bool is_one_of(const optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Kinds*>(&optimizer) != nullptr) || ...);
}

void require_per_element(const optim::Optimizer& optimizer) {
  if (is_one_of<optim::SGD, optim::Adam, optim::AdamW, optim::RMSprop, optim::Adagrad, RAdam, Yogi,
                DelayedNesterov>(optimizer)) {
    return;
  }
  refuse(
      "Zero: {} cannot step a shard of the parameters independently. Use SGD, Adam, AdamW, "
      "RMSprop, Adagrad, or gradwire's RAdam, Yogi, Lars, Lamb or RangerLars; if it is "
      "element-wise, set "
      "ZeroOptions::optimizer_is_per_element; otherwise use DataParallel",
      c10::demangle(typeid(optimizer).name()));
}

/// Returns a separate tensor that shares the memory.
torch::Tensor alias(const torch::Tensor& tensor, std::int64_t offset, std::int64_t count) {
  return torch::empty({0}, tensor.options())
      .set_(tensor.storage(), tensor.storage_offset() + offset, {count}, {1});
}

}  // namespace

ShardOptimizer::ShardOptimizer(FlatUnit& unit, const OptimizerFactory& factory, bool per_element,
                               const SumOverRanks& sum)
    : unit_(unit) {
  std::vector<NamedTensor> whole;
  for (const auto& member : unit_.members()) whole.push_back({member.name, member.parameter});
  optimizer_ = factory(whole);
  has_distributed_norms_ = is_one_of<LayerwiseOptimizer>(*optimizer_);
  if (!has_distributed_norms_ && !per_element) require_per_element(*optimizer_);
  const bool made_states = !optimizer_->state().empty();
  optimizer_->state().clear();
  place_in_shard();
  if (has_distributed_norms_) set_norms(sum);
  if (!made_states) return;
  if (!is_one_of<optim::Adagrad>(*optimizer_)) {
    refuse(
        "Zero: the constructor of {} makes states of whole parameters, but it will step parts of "
        "them; make each state in the first step that needs it",
        c10::demangle(typeid(*optimizer_).name()));
  }
  make_states(*optimizer_);
}

/// Returns the group of each member, by TensorImpl.
std::unordered_map<const void*, std::size_t> ShardOptimizer::group_of_members() const {
  std::unordered_map<const void*, std::size_t> group_of;
  const auto& groups = optimizer_->param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const auto& parameter : groups[group].params()) {
      const bool is_member = std::ranges::any_of(
          unit_.members(), [&](const auto& member) { return member.parameter.is_same(parameter); });
      if (!is_member) {
        refuse(
            "Zero: group {} of the optimizer of {} has a tensor that the factory was not given; "
            "put the given parameters into groups, each as it is",
            group, unit_.name());
      }
      group_of[parameter.unsafeGetTensorImpl()] = group;
    }
  }
  return group_of;
}

/// Replaces the parameters of each group by what the shard has of them.
void ShardOptimizer::place_in_shard() {
  const auto group_of = group_of_members();
  for (const auto& piece : unit_.pieces()) {
    const auto found = group_of.find(piece.member->parameter.unsafeGetTensorImpl());
    if (found == group_of.end()) continue;  // Not stepped.
    const auto end = [](const Parameter& last) {
      return last.pieces.back().offset + last.pieces.back().count;
    };
    const bool continues = !has_distributed_norms_ && !parameters_.empty() &&
                           parameters_.back().group == found->second &&
                           end(parameters_.back()) == piece.offset;
    if (!continues) parameters_.push_back({.offset = piece.offset, .group = found->second});
    parameters_.back().pieces.push_back(piece);
  }
  auto& groups = optimizer_->param_groups();
  for (auto& group : groups) group.params().clear();
  for (auto& [tensor, offset, pieces, group] : parameters_) {
    const auto count = pieces.back().offset + pieces.back().count - offset;
    tensor = alias(unit_.master(), offset, count);
    groups[group].params().push_back(tensor);
  }
}

void ShardOptimizer::set_norms(const SumOverRanks& sum) {
  const auto norms = std::make_shared<DistributedNorms>(unit_.members().size(), sum);
  for (const auto& parameter : parameters_) {
    const auto* member = parameter.pieces.front().member;
    norms->place(parameter.tensor, static_cast<std::size_t>(member - unit_.members().data()),
                 member->parameter.dim() > 1);
  }
  dynamic_cast<LayerwiseOptimizer&>(*optimizer_).set_distributed_norms(norms);
}

void ShardOptimizer::step(torch::Tensor gradient, double scale, const BeforeStep& before) {
  const torch::NoGradGuard no_grad;
  const KeptMemoryScope memory(MemoryCategory::optimizer);
  gradient = gradient.to(unit_.master().scalar_type());
  if (scale != 1) gradient.mul_(scale);
  for (const auto& parameter : parameters_) {
    parameter.tensor.mutable_grad() = alias(gradient, parameter.offset, parameter.tensor.numel());
  }
  if (before) before(*optimizer_);
  optimizer_->step();
  for (const auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  unit_.copy_master_to_shard();
  if (!folder_.empty()) move_to_files();
}

/// Runs once: the states exist from the first step, or from loading a checkpoint.
void ShardOptimizer::move_to_files() {
  for (const auto& parameter : parameters_) {
    for (const auto& state : states_of(*optimizer_, parameter.tensor)) {
      if (state.tensor.dim() > 0) move_to_file(state.tensor, folder_);
    }
  }
  if (unit_.has_master()) move_to_file(unit_.master(), folder_);
  folder_.clear();
}

std::vector<TensorPiece> ShardOptimizer::states(bool make) {
  if (make) {
    const MemoryScope memory(MemoryCategory::optimizer);
    make_states(*optimizer_);
    // Before other units' states are made: at most one unit's are in memory.
    if (!folder_.empty()) move_to_files();
  }
  std::vector<TensorPiece> found;
  for (const auto& parameter : parameters_) append_states(parameter, found);
  return found;
}

void ShardOptimizer::append_states(const Parameter& parameter, std::vector<TensorPiece>& found) {
  for (const auto& [name, tensor] : states_of(*optimizer_, parameter.tensor)) {
    for (const auto& piece : parameter.pieces) {
      const auto full_name = fmt::format("optimizer.{}.{}", name, piece.member->name);
      if (tensor.dim() == 0) {
        found.push_back({full_name, {}, 0, tensor.view({1})});
      } else {
        found.push_back({full_name, piece.member->parameter.sizes().vec(), piece.begin,
                         alias(tensor, piece.offset - parameter.offset, piece.count)});
      }
      found.back().is_state = true;
    }
  }
}

std::size_t ShardOptimizer::state_bytes() {
  std::size_t bytes = 0;
  for (const auto& parameter : parameters_) {
    for (const auto& state : states_of(*optimizer_, parameter.tensor)) {
      if (state.tensor.dim() > 0) bytes += state.tensor.nbytes();
    }
  }
  return bytes;
}

}  // namespace gradwire
