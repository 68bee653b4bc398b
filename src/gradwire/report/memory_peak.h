#pragma once

#include <cstdint>

#include "gradwire/trace/memory_timeline.h"

namespace gradwire {

/// Peak memory use, and its composition.
struct MemoryPeak {
  std::int64_t bytes = 0;  ///< Sum over categories; 0: not measured.
  MemoryBytes at_peak{};   ///< Each category at that moment; the sum is `bytes`.
  MemoryBytes max{};       ///< Each category's own maximum.
  /// Resident peak of the whole process (VmHWM), including libraries and memory outside tensors. 0:
  /// not measured.
  std::int64_t resident = 0;
};

}  // namespace gradwire
