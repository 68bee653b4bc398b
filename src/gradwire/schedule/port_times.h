#pragma once

#include <vector>

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// By host: the seconds that what its port sends or receives, whichever is more, takes at the
/// port's rate. What stays inside a host does not count.
std::vector<double> port_times(const ProgramSet& programs, const Topology& topology,
                               const ChunkLayout& layout);

}  // namespace gradwire
