#pragma once

#include <cstddef>

#include "gradwire/emulation/emulated_device.h"

namespace gradwire {

/// Peak bytes of a rank's own memory.
struct EmulatedMemory {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
};

/// Training steps with emulated compute and real communication, for different parallelism schemes.
class EmulatedSteps {
 public:
  virtual ~EmulatedSteps() = default;

  /// Runs one optimizer step. The next step waits for communication still in flight at its end.
  /// Throws what communication throws.
  virtual void step() = 0;

  /// Blocks until nothing is in flight.
  virtual void finish() = 0;

  virtual const EmulatedDevice& device() const = 0;
  virtual EmulatedMemory memory() const = 0;
};

}  // namespace gradwire
