#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/connect.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// Returns the assumed topology of a job whose network has not been measured. The rendezvous tells
/// which ranks share a machine; each machine gets a port of 1 Gb/s Ethernet.
topology::Topology assumed_topology(const std::vector<bootstrap::RankEndpoint>& endpoints);

/// Returns the topology used by all ranks of a job: that of the file at `path` on rank 0, which
/// distributes it through `communicator`. With an empty `path`, the assumed one. A collective
/// operation: every rank must call it, although only rank 0's `path` is used. Throws the Exceptions
/// of the operations; invalid_argument or system, on every rank, if the file cannot be used.
topology::JobTopology agree_on_topology(Communicator& communicator,
                                        const std::vector<bootstrap::RankEndpoint>& endpoints,
                                        const std::string& path);

}  // namespace gradwire
