#pragma once

#include <cstdint>

#include "gradwire/host/group.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/report/run_record.h"

namespace gradwire::recipe {

/// Returns the peak resident memory of this process in bytes (VmHWM of /proc/self/status); 0 if the
/// kernel does not report it.
std::int64_t peak_resident_bytes();

/// Returns the peak of the rank with the highest tensor peak, and the maximum resident peak over
/// ranks. `tracker` may be null: on all ranks alike, or where another rank of the process has it.
/// Collective; the same result on every rank.
report::MemoryPeak max_peak(c10d::ProcessGroup& group, const MemoryTracker* tracker);

}  // namespace gradwire::recipe
