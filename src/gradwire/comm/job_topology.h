#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/comm/rendezvous.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// What is assumed of a job whose network nobody has measured: which ranks share a machine is known
/// from the rendezvous, and each machine has a port of 1 Gb/s Ethernet.
Topology assumed_topology(const std::vector<RankPlace>& places);

/// The topology that all ranks of a job go by: of the file at `path` on rank 0, which tells the
/// others through `communicator`; without one (empty `path`), the assumed. A collective operation:
/// every rank calls it, though only rank 0's `path` counts. Throws Exception: those of the
/// operations; invalid_argument or system, on every rank, if the file cannot be used.
JobTopology agree_on_topology(Communicator& communicator, const std::vector<RankPlace>& places,
                              const std::string& path);

}  // namespace gradwire
