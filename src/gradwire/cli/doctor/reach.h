#pragma once

#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/net/host_network.h"

namespace gradwire {

/// Tries to reach every other host's ReachabilityServer from each rail of this host, and the
/// address where rank 0 listens. Tries TCP to all concurrently, then datagrams to one after the
/// other.
/// `others[i]`: report of host i; nullopt: none. Waits at most `patience` for TCP.
std::vector<Reachability> reach_all(const HostNetwork& network, const Job& job,
                                    const std::vector<RailEndpoint>& rails,
                                    const std::vector<std::optional<HostInfo>>& others,
                                    Duration patience);

}  // namespace gradwire
