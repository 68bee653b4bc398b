#include "gradwire/train/distributed_module.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/host/training_host.h"
#include "gradwire/train/data_parallel/model_check.h"

namespace gradwire {

void DistributedModule::before_forward(const torch::nn::Module& module) {
  if (torch::GradMode::is_enabled()) {
    const auto unknown = first_unknown_trainable(module, [this](const torch::Tensor& parameter) {
      return host().unit_of(parameter).has_value();
    });
    if (!unknown.empty()) {
      const std::string& who = host().errors().who();
      host().errors().fail(
          ErrorKind::invalid_argument,
          fmt::format("'{}' is trainable, but was absent or frozen when the {} was constructed, so "
                      "its gradient would not be averaged, and it would never be stepped; "
                      "construct a new {} from the module",
                      unknown, who, who));
    }
    check_before_training();
  }
  host().before_forward(module.is_training());
}

void DistributedModule::after_forward(const std::vector<torch::Tensor>& outputs) {
  host().after_forward(outputs);
}

bool DistributedModule::needs_outputs() const {
  return host().needs_outputs();
}

void DistributedModule::finish() {
  host().finish();
}

void DistributedModule::abandon_step() {
  host().abandon_step();
}

void DistributedModule::synchronize_buffers() {
  host().synchronize_buffers();
}

SyncControl& DistributedModule::sync_control() const {
  return host();
}

int DistributedModule::rank() const {
  return host().rank();
}

int DistributedModule::size() const {
  return host().size();
}

const ProcessGroup& DistributedModule::group() const {
  return host().group();
}

step::StepStats DistributedModule::stats() const {
  return host().stats();
}

void DistributedModule::before_block(const torch::nn::Module& block) {
  host().before_block(id_of(block));
}

void DistributedModule::after_block(const torch::nn::Module& block,
                                    const std::vector<torch::Tensor>& outputs) {
  host().after_block(id_of(block), outputs);
}

void DistributedModule::set_block(const torch::nn::Module& block, std::vector<std::size_t> units) {
  blocks_[&block] = host().add_block(std::move(units));
}

std::size_t DistributedModule::id_of(const torch::nn::Module& block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(&block);
  if (found != blocks_.end()) return found->second;
  std::vector<std::size_t> units;
  for (const auto& parameter : block.parameters()) {
    const auto unit = host().unit_of(parameter);
    if (unit && std::ranges::find(units, *unit) == units.end()) units.push_back(*unit);
  }
  set_block(block, std::move(units));
  return blocks_[&block];
}

void broadcast_model(const std::string& who, const ProcessGroup& group,
                     std::vector<NamedTensor> parameters, const std::vector<NamedTensor>& buffers) {
  if (group->getSize() == 1) return;
  parameters.insert(parameters.end(), buffers.begin(), buffers.end());
  check_same_model(who, *group, parameters);
  broadcast_tensors(*group, parameters);
}

}  // namespace gradwire
