#pragma once

#include <cstdint>

#include "gradwire/report/memory_timeline.h"

namespace gradwire {

/// The most memory that was in use at once, and of what.
struct MemoryPeak {
  std::int64_t bytes = 0;  ///< Of all categories together; 0: not measured.
  MemoryBytes at_peak{};   ///< Of each at that moment: their sum is `bytes`.
  MemoryBytes most{};      ///< Of each at its own greatest moment.
  /// Of the whole process, as the kernel counts it (VmHWM): libraries, and what is not in tensors,
  /// too. 0: not measured.
  std::int64_t resident = 0;
};

}  // namespace gradwire
