#pragma once

#include <string>
#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/cli/doctor/host_report.h"

namespace gradwire {

/// Examines this host, except for endpoints and echoes. Resolves `names`.
HostInfo read_host_info(const std::vector<std::string>& names);

/// Returns the interfaces that this rank of the job would use. If they cannot be determined
/// (unresolved master, unknown interface), adds the error to `problems` and returns the first
/// usable interface. The rest can then still be examined.
std::vector<RailEndpoint> find_rails(const Job& job, std::vector<std::string>& problems);

/// Returns the rate that a network card has negotiated, in Mb/s; 0 if the link is down, and for
/// virtual interfaces, whose value is meaningless.
int negotiated_megabits(const std::string& interface);

/// Returns text about network cards at least twice as fast as each of the rails.
std::vector<std::string> faster_interfaces(const std::vector<RailEndpoint>& rails);

}  // namespace gradwire
