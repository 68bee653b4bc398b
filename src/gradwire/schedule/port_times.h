#pragma once

#include <vector>

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// What a host's port carries.
struct PortBytes {
  double sent = 0;
  double received = 0;
};

/// By host. What stays inside a host does not count.
std::vector<PortBytes> port_bytes(const ProgramSet& programs, const Topology& topology,
                                  const ChunkLayout& layout);

/// By host: the seconds that what its port sends or receives, whichever is more, takes at the
/// port's rate.
std::vector<double> port_times(const ProgramSet& programs, const Topology& topology,
                               const ChunkLayout& layout);

}  // namespace gradwire
