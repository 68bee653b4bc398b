#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/engine/engine.h"

namespace gradwire {

class DeviceHub;

/// The engine of one device.
class DeviceEngine final : public engine::Engine {
 public:
  DeviceEngine(std::shared_ptr<DeviceHub> hub, int device);
  ~DeviceEngine() override;

  engine::EngineTraits traits() const override;
  void post(engine::OperationRequest request) override;
  void post(std::vector<engine::OperationRequest> requests) override;
  Time now() const override;
  void wait(const engine::PostedWork& work, Time until) override;
  void abort(Error error) override;
  void abort_with(Rank /*peer*/, Error error) override { abort(std::move(error)); }
  void close(Close how, const std::string& failure) override;
  engine::Executor::Traffic traffic() override;
  void open_lanes(std::uint16_t group, int first, int count) override;
  std::optional<std::uint16_t> open_group(std::uint16_t parent,
                                          std::span<const Rank> ranks) override;

 private:
  friend DeviceHub;  // Takes ended operations.

  std::shared_ptr<DeviceHub> hub_;
  int device_;
  bool is_closed_ = false;
};

}  // namespace gradwire
