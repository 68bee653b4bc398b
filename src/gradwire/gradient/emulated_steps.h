#pragma once

#include <cstddef>

#include "gradwire/gradient/emulated_device.h"

namespace gradwire {

/// Bytes of a rank's own memory, the most there were at any time.
struct EmulatedMemory {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
};

/// Training steps with emulated compute and real communication, by one scheme or another.
class EmulatedSteps {
 public:
  virtual ~EmulatedSteps() = default;

  /// One step of the optimiser. What is under way at its end is the next one's to wait for. Throws
  /// what communication throws.
  virtual void step() = 0;

  /// Until nothing is under way.
  virtual void finish() = 0;

  virtual const EmulatedDevice& device() const = 0;
  virtual EmulatedMemory memory() const = 0;
};

}  // namespace gradwire
