#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/train/data_parallel/data_parallel.h"

namespace gradwire {

/// Ranks that are threads of this process, each with a device and with its member of one process
/// group (comm/devices/device_communicators.h).
class DeviceGroup {
 public:
  /// `between`: a gradwire group of this process and others with as many devices each, which
  /// nothing else may use afterwards; null: this process is alone. Collective over the processes.
  /// Throws Exception(invalid_argument, unsupported).
  DeviceGroup(const ProcessGroup& between, std::vector<torch::Device> devices);

  int size() const { return static_cast<int>(devices_.size()); }
  const torch::Device& device(int index) const { return devices_[static_cast<std::size_t>(index)]; }
  const ProcessGroup& group(int index) const { return groups_[static_cast<std::size_t>(index)]; }

  /// Runs `work` on a thread for each device, which is the current one there, and waits for all.
  /// Threads share the torch threads of the caller equally. An exception of one aborts the group,
  /// which ends the others' operations and those of other processes, and is thrown here.
  void run(const std::function<void(int index)>& work) const;

 private:
  std::vector<torch::Device> devices_;
  std::vector<ProcessGroup> groups_;
};

struct DeviceParallelOptions {
  /// The device of each replica, such as {{torch::kCUDA, 0}, {torch::kCUDA, 1}}. Required.
  std::vector<torch::Device> devices;
  /// DeviceGroup's `between`.
  ProcessGroup process_group = nullptr;
  /// The options of each replica, whose process_group is ignored. `trace` is of the first one.
  DataParallelOptions replica = {};
};

/// Data-parallel training on several devices by threads of one process, maybe of several. Gradients
/// are reduced in host memory without sockets. `Module` is a TORCH_MODULE holder or a
/// std::shared_ptr to a module.
///
///     gradwire::DeviceParallel<Net> model([] { return Net(); },
///                                         {.devices = {{torch::kCUDA, 0}, {torch::kCUDA, 1}},
///                                          .replica = {.optimizer = make_sgd}});
///     model.run([&](gradwire::DataParallel<Net>& replica, int index) {
///       for (auto [inputs, targets] : batches_of(replica.rank(), replica.world_size())) {
///         torch::nll_loss(replica(inputs.to(model.device(index))), ...).backward();
///         replica.step();
///       }
///     });
///
/// Each replica is a rank: with two devices, the bits are those of two processes. Ranks are
/// numbered process by process. libtorch has one generator of random numbers for the CPU: replicas
/// there draw from it in no fixed order.
///
/// Errors: throws Exception on all ranks, and is unusable afterwards. Not thread-safe.
template <class Module>
class DeviceParallel {
 public:
  using Replica = DataParallel<Module>;

  /// Makes the replicas with `make`, on this thread, and moves them to their devices. All get the
  /// values of rank 0's. Collective over the processes.
  DeviceParallel(const std::function<Module()>& make, const DeviceParallelOptions& options)
      : group_(options.process_group, options.devices), replicas_(options.devices.size()) {
    std::vector<Module> modules;
    for (const torch::Device& device : options.devices) {
      modules.push_back(make());
      modules.back()->to(device);
    }
    group_.run([&](int index) {
      const auto at = static_cast<std::size_t>(index);
      DataParallelOptions own = options.replica;
      own.process_group = group_.group(index);
      if (index > 0) own.trace = nullptr;
      replicas_[at] = std::make_unique<Replica>(modules[at], own);
    });
  }

  /// Runs `work` with each replica, on a thread of its own (DeviceGroup::run).
  void run(const std::function<void(Replica& replica, int index)>& work) {
    group_.run([&](int index) { work(replica(index), index); });
  }

  int devices() const { return group_.size(); }
  const torch::Device& device(int index) const { return group_.device(index); }
  /// For the time between runs.
  Replica& replica(int index) { return *replicas_[static_cast<std::size_t>(index)]; }

 private:
  DeviceGroup group_;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace gradwire
