#include "gradwire/torch/process_group.h"

#include <utility>

#include <ATen/DeviceAccelerator.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/hybrid_process_group.h"
#include "gradwire/torch/releases.h"
#include "gradwire/torch/staged_process_group.h"

namespace gradwire {

c10::intrusive_ptr<c10d::Backend> ProcessGroupGradwire::make_split(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<GroupOptions> options) const {
  return c10::make_intrusive<ProcessGroupGradwire>(std::move(communicator), std::move(options));
}

ProcessGroupGradwire::WorkPointer ProcessGroupGradwire::stage(DeviceOperation /*operation*/) {
  refuse("rank {}: this group is for tensors on the CPU", rank_);
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store) {
  return process_group_of(c10::make_intrusive<StagedProcessGroup>(std::move(communicator)),
                          std::move(store));
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(
    const c10::intrusive_ptr<c10d::Backend>& backend, c10::intrusive_ptr<c10d::Store> store) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(std::move(store), backend->getRank(),
                                                       backend->getSize());
  group->setBackend(c10::DeviceType::CPU, custom, backend);
  if (const auto accelerator = at::accelerator::getAccelerator()) {
    group->setBackend(*accelerator, custom, backend);
  }
  group->setDefaultBackend(custom);
  return group;
}

c10::intrusive_ptr<c10d::ProcessGroup> subgroup_of(c10d::ProcessGroup& group,
                                                   const std::vector<Rank>& ranks) {
  const auto communicator = communicator_of(group);
  if (!communicator) {
    throw Exception(ErrorKind::unsupported,
                    "subgroups need a process group of gradwire: make it with gradwire::init()");
  }
  refuse_inside(group, "subgroups, as pipelines and parallel layers need");
  return make_process_group(communicator->subgroup(ranks));
}

std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group) {
  if (!has_backend(group, c10::DeviceType::CPU)) return nullptr;
  const auto backend = group.getBackend(c10::DeviceType::CPU);
  const auto* ours = dynamic_cast<const ProcessGroupGradwire*>(backend.get());
  return ours ? ours->communicator() : nullptr;
}

}  // namespace gradwire
