#include "gradwire/comm/devices/device_engine.h"

#include <utility>

#include "gradwire/comm/devices/device_hub.h"

namespace gradwire {

DeviceEngine::DeviceEngine(std::shared_ptr<DeviceHub> hub, int device)
    : hub_(std::move(hub)), device_(device) {
  hub_->join(device_, this);
}

DeviceEngine::~DeviceEngine() {
  hub_->join(device_, nullptr);
}

engine::EngineTraits DeviceEngine::traits() const {
  return hub_->traits();
}

void DeviceEngine::post(engine::OperationRequest request) {
  std::vector<engine::OperationRequest> one;
  one.push_back(std::move(request));
  hub_->post(device_, std::move(one));
}

void DeviceEngine::post(std::vector<engine::OperationRequest> requests) {
  hub_->post(device_, std::move(requests));
}

Time DeviceEngine::now() const {
  return hub_->now();
}

void DeviceEngine::wait(const engine::PostedWork& work, Time until) {
  hub_->wait(work, until);
}

void DeviceEngine::abort(Error error) {
  hub_->abort(std::move(error));
}

void DeviceEngine::close(Close how, const std::string& failure) {
  if (std::exchange(is_closed_, true)) return;
  hub_->leave(device_, how, failure);
}

engine::Executor::Traffic DeviceEngine::traffic() {
  return hub_->traffic(device_);
}

void DeviceEngine::open_lanes(std::uint16_t group, int first, int count) {
  hub_->open_lanes(group, first, count);
}

std::optional<std::uint16_t> DeviceEngine::open_group(std::uint16_t parent,
                                                      std::span<const Rank> ranks) {
  return hub_->open_group(device_, parent, ranks);
}

}  // namespace gradwire
