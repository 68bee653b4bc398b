#pragma once

#include <string>
#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/cli/doctor/reach.h"

namespace gradwire::cli {

/// Examines this host and its paths to the others, as number job.rank of job.world_size hosts that
/// all do the same, and reports through the store. `names`: of the hosts, by number; empty if hosts
/// are known only by rank. `python`: the program that jobs in Python would run. Fails if the store
/// is gone.
Status examine_host(const net::HostNetwork& network, const bootstrap::Job& job,
                    const std::vector<std::string>& names, const std::string& python,
                    MasterPort port, bootstrap::Store& store);

/// Collects the hosts' reports from the store; waits at most `patience` for each further entry of a
/// host that has reported at all. `reports` already have their names.
ClusterReport collect(bootstrap::Store& store, std::vector<HostReport> reports, Duration patience);

}  // namespace gradwire::cli
