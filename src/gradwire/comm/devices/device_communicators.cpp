#include "gradwire/comm/devices/device_communicators.h"

#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/arguments.h"
#include "gradwire/comm/devices/device_engine.h"
#include "gradwire/comm/devices/device_hub.h"
#include "gradwire/comm/planner.h"
#include "gradwire/comm/scheduled_communicator.h"
#include "gradwire/net/host_network.h"

namespace gradwire {

std::vector<std::shared_ptr<Communicator>> device_communicators(
    std::shared_ptr<Communicator> between, int devices, const CommunicatorOptions& options) {
  if (devices < 1) refuse("{} devices: there must be at least one", devices);
  check_domain(options.failure_domain, "devices of one process");
  const std::shared_ptr<const net::HostNetwork> network =
      options.network ? options.network : std::make_shared<net::KernelNetwork>();
  const auto hub = std::make_shared<DeviceHub>(
      std::move(between), devices, std::shared_ptr<const Clock>(network, &network->clock()));
  std::vector<std::shared_ptr<Communicator>> made;
  for (int device = 0; device < devices; ++device) {
    const Rank rank = hub->shape().rank(device);
    made.push_back(std::make_shared<ScheduledCommunicator>(
        rank, options, std::make_shared<Planner>(rank, hub->shape().ranks(), "devices"),
        std::make_shared<SharedEngine>(std::make_shared<DeviceEngine>(hub, device))));
  }
  return made;
}

std::vector<std::shared_ptr<Communicator>> device_communicators(
    std::shared_ptr<Communicator> between, int devices) {
  CommunicatorOptions options;
  if (const auto* own = dynamic_cast<const ScheduledCommunicator*>(between.get()))
    options.operation_timeout = own->operation_timeout();
  return device_communicators(std::move(between), devices, options);
}

}  // namespace gradwire
