#pragma once

#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/servers/messages.h"

namespace gradwire::servers {

/// Returns the sums of the values over all servers, of which this is `server`, added in their
/// order: the same bits on all. Collective over the servers, which call it once for each sum of a
/// step, so that they must take the same steps. Throws Exception(disconnected) if another server is
/// gone, or takes no such step within the communicator's timeout.
std::vector<double> sum_over_servers(Communicator& pairs, const Placement& placement, int server,
                                     std::vector<double> values);

}  // namespace gradwire::servers
