#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/report/trace.h"

namespace gradwire {

/// A communication that computing came to wait for: indices into a log's spans.
struct TraceFlow {
  std::size_t communication = 0;
  std::size_t wait = 0;
};

/// Every wait named "wait for X" together with the last communication X that began before the wait
/// ended, if there is one. In the order of the waits.
std::vector<TraceFlow> flows_of(const TraceLog& log);

}  // namespace gradwire
