#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/doctor/facts.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rank_place.h"

namespace gradwire {

/// What this host says about itself, endpoints and echoes aside. `names` are to be resolved.
HostFacts look_at_host(const std::vector<std::string>& names);

/// The interfaces that this rank of the job would use. Where it could not say (the master's name
/// does not resolve, there is no such interface), the first that could do, so that the rest can
/// still be examined; what is wrong is added to `problems`.
std::vector<RailPlace> find_rails(const Job& job, std::vector<std::string>& problems);

/// What a network card says that its link does, in megabits per second; 0 for other interfaces (a
/// virtual one's number means nothing), and if the link is down.
int negotiated_megabits(const std::string& interface);

/// Cards that do more than twice as much as each of the rails, for people.
std::vector<std::string> faster_interfaces(const std::vector<RailPlace>& rails);

}  // namespace gradwire
