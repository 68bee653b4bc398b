#include "gradwire/train/zero/unit_plan.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gradwire/train/activation/await_parameters.h"

namespace gradwire {
namespace {

using Module = torch::nn::Module;

/// Parameters of the same kind may share a unit.
std::string kind_of(const NamedTensor& parameter, const UnitSharing& sharing) {
  return fmt::format("{} {} {} {}", torch::toString(parameter.tensor.scalar_type()),
                     parameter.tensor.device().str(), sharing.apart.contains(parameter.name),
                     sharing.alone.contains(parameter.name) ? parameter.name : "");
}

std::vector<std::vector<std::size_t>> by_buckets(const std::vector<NamedTensor>& parameters,
                                                 const std::vector<std::size_t>& members,
                                                 const step::BucketLimits& limits,
                                                 const UnitSharing& sharing) {
  std::map<std::string, int> kinds;
  std::vector<step::ParameterSize> sizes;
  for (const auto index : members) {
    const NamedTensor& parameter = parameters[index];
    const auto kind =
        kinds.emplace(kind_of(parameter, sharing), static_cast<int>(kinds.size())).first->second;
    sizes.push_back({parameter.tensor.nbytes(), kind});
  }
  auto buckets = step::plan_buckets(sizes, limits);
  for (auto& bucket : buckets) {
    for (auto& position : bucket) position = members[position];
  }
  return buckets;
}

std::vector<std::vector<std::size_t>> by_kind(const std::vector<NamedTensor>& parameters,
                                              const std::vector<std::size_t>& members,
                                              const UnitSharing& sharing) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::string, std::size_t> group_of;
  for (const auto index : members) {
    const auto [found, is_new] =
        group_of.emplace(kind_of(parameters[index], sharing), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(index);
  }
  return groups;
}

/// Finds the innermost block of each parameter.
class BlockFinder {
 public:
  BlockFinder(const std::vector<NamedTensor>& parameters,
              const std::vector<std::shared_ptr<Module>>& declared) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      index_of_[parameters[i].tensor.unsafeGetTensorImpl()] = i;
    }
    for (const auto& block : declared) declared_.insert(block.get());
  }

  struct Block {
    std::string name;
    const Module* module = nullptr;
    std::vector<std::size_t> members;
  };

  std::vector<Block> find(const Module& root) {
    const bool sequential = dynamic_cast<const torch::nn::SequentialImpl*>(&root) != nullptr;
    for (const auto& child : root.named_children()) {
      visit(*child.value(), child.key(), kRoot, sequential);
    }
    for (const auto& [parameter, block] : owner_) {
      if (block != kRoot) blocks_[block].members.push_back(parameter);
    }
    return std::move(blocks_);
  }

 private:
  static constexpr std::size_t kRoot = static_cast<std::size_t>(-1);

  void visit(const Module& module, const std::string& name, std::size_t around, bool is_block) {
    is_block = is_block || declared_.contains(&module) ||
               dynamic_cast<const DeclaredBlock*>(&module) != nullptr;
    auto block = around;
    if (is_block) {
      const auto [found, is_new] = number_of_.emplace(&module, blocks_.size());
      if (is_new) blocks_.push_back({name, &module, {}});
      block = found->second;
    }
    for (const auto& item : module.named_parameters(/*recurse=*/false)) claim(item.value(), block);
    for (const auto& child : module.named_children()) {
      visit(*child.value(), name + "." + child.key(), block, false);
    }
  }

  void claim(const torch::Tensor& parameter, std::size_t block) {
    const auto found = index_of_.find(parameter.unsafeGetTensorImpl());
    if (found == index_of_.end()) return;
    const auto [owner, is_new] = owner_.emplace(found->second, block);
    if (!is_new && owner->second != block) owner->second = kRoot;
  }

  std::unordered_map<const void*, std::size_t> index_of_;
  std::unordered_set<const Module*> declared_;
  std::vector<Block> blocks_;
  std::unordered_map<const Module*, std::size_t> number_of_;
  std::map<std::size_t, std::size_t> owner_;  ///< Block by parameter; kRoot: in several blocks.
};

std::int64_t elements_of(const std::vector<NamedTensor>& parameters,
                         const std::vector<std::size_t>& members) {
  std::int64_t elements = 0;
  for (const auto index : members) elements += parameters[index].tensor.numel();
  return elements;
}

}  // namespace

UnitPlan plan_whole_units(const std::vector<NamedTensor>& parameters,
                          const step::BucketLimits& limits, const UnitSharing& sharing) {
  std::vector<std::size_t> all(parameters.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  UnitPlan plan;
  for (auto& members : by_buckets(parameters, all, limits, sharing)) {
    plan.units.push_back({fmt::format("{}", plan.units.size()), std::move(members)});
  }
  return plan;
}

UnitPlan plan_block_units(const Module& module, const std::vector<NamedTensor>& parameters,
                          const std::vector<std::shared_ptr<Module>>& declared,
                          const step::BucketLimits& limits, std::int64_t min_elements,
                          const UnitSharing& sharing) {
  UnitPlan plan;
  std::vector<bool> placed(parameters.size());
  for (const auto& block : BlockFinder(parameters, declared).find(module)) {
    // Also without units: the block's forward is observed all the same.
    auto& units = plan.units_of_block[block.module];
    if (elements_of(parameters, block.members) < min_elements) continue;
    for (auto& members : by_kind(parameters, block.members, sharing)) {
      for (const auto index : members) placed[index] = true;
      units.push_back(plan.units.size());
      plan.units.push_back({block.name, std::move(members)});
    }
  }
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (!placed[i]) rest.push_back(i);
  }
  auto root = rest.empty() ? std::vector<std::vector<std::size_t>>()
                           : by_buckets(parameters, rest, limits, sharing);
  for (auto& members : root) plan.units.push_back({"(in no block)", std::move(members), true});
  return plan;
}

}  // namespace gradwire
