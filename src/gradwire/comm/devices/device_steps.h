#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "gradwire/base/work.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/engine/operations/operation.h"

namespace gradwire {

/// The ranks of a group: devices of processes, process by process.
struct DeviceShape {
  int processes = 1;
  int process = 0;  ///< This one.
  int devices = 1;  ///< Devices of each process.

  int ranks() const { return processes * devices; }
  Rank rank(int device) const { return process * devices + device; }
  int process_of(Rank rank) const { return rank / devices; }
  std::size_t device_of(Rank rank) const { return static_cast<std::size_t>(rank % devices); }
};

/// A part of an operation, which begins when the one before it is complete.
struct DeviceStep {
  /// Slices, which threads may run in any order and at the same time.
  std::size_t slices = 0;
  std::function<void(std::size_t slice)> run;
  /// In place of slices: an operation of all processes.
  std::function<Work(Communicator& between, int lane)> between;
};

/// Returns the steps of a collective, of which each device of this process has brought its request.
std::vector<DeviceStep> steps_of(const std::vector<engine::OperationRequest>& requests,
                                 const DeviceShape& shape);

/// Returns the step that copies a message.
DeviceStep message_step(const std::byte* from, std::byte* to, std::size_t bytes);

}  // namespace gradwire
