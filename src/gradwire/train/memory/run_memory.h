#pragma once

#include <cstdint>

#include "gradwire/report/memory_peak.h"
#include "gradwire/train/group.h"
#include "gradwire/train/memory/memory_tracker.h"

namespace gradwire {

/// The most memory that this process had resident at once so far, in bytes (VmHWM of
/// /proc/self/status); 0 where the kernel does not say.
std::int64_t peak_resident_bytes();

/// The peak of the rank whose tensors needed most, with the greatest resident peak of all ranks.
/// `tracker` may be null, on all ranks alike. The same on every rank: collective.
MemoryPeak greatest_peak(c10d::ProcessGroup& group, const MemoryTracker* tracker);

}  // namespace gradwire
