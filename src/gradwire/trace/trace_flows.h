#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/trace/trace.h"

namespace gradwire {

/// A communication and the wait for it: indices into a log's spans.
struct TraceFlow {
  std::size_t communication = 0;
  std::size_t wait = 0;
};

/// Returns, for every wait named "wait for X", the last communication X that began before the wait
/// ended, if any. In the order of the waits.
std::vector<TraceFlow> flows_of(const TraceLog& log);

}  // namespace gradwire
