#pragma once

#include <vector>

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// Bytes that a host's port carries.
struct PortBytes {
  double sent = 0;
  double received = 0;
};

/// Returns the bytes by host. Messages within a host do not count.
std::vector<PortBytes> port_bytes(const ProgramSet& programs, const Topology& topology,
                                  const ChunkLayout& layout);

/// Returns, by host, the seconds that its sent or received bytes, whichever are more, take at the
/// port's rate.
std::vector<double> port_times(const ProgramSet& programs, const Topology& topology,
                               const ChunkLayout& layout);

}  // namespace gradwire
