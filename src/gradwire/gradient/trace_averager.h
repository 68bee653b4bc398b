#pragma once

#include <memory>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Wraps `averager` so that its buckets appear in a trace, without the averager or its users
/// knowing of traces. Each bucket is recorded as communication from start() until its mean is in
/// place, and each wait() that blocks as a wait. With a null `recorder` it returns `averager`
/// itself. `recorder` must outlive it and all operations in flight.
std::unique_ptr<Averager> trace_averager(std::unique_ptr<Averager> averager,
                                         TraceRecorder* recorder);

}  // namespace gradwire
