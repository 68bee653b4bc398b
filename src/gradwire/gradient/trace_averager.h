#pragma once

#include <memory>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/report/trace.h"

namespace gradwire {

/// An averager whose buckets appear in a trace, so that neither averagers nor those who use them
/// know of traces: each bucket as communication from start() to when its mean is in place, and each
/// wait() that has to wait as a wait. It does what `averager` does otherwise. With a null
/// `recorder` it is `averager` itself. `recorder` must outlive it, and operations under way.
std::unique_ptr<Averager> trace_averager(std::unique_ptr<Averager> averager,
                                         TraceRecorder* recorder);

}  // namespace gradwire
