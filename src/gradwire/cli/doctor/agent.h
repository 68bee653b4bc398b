#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/doctor/endpoint.h"
#include "gradwire/cli/doctor/facts.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/store.h"

namespace gradwire {

/// Examines this host and its ways to the others, as number job.rank of job.world_size hosts that
/// all do the same, and leaves what it finds in the store, where the others' findings are too.
/// `names`: of the hosts, by number; empty for those that are only known by their rank.
/// Error: when the store is gone.
Status examine_from_here(const Job& job, const std::vector<std::string>& names, MasterPort port,
                         Store& store);

/// What the hosts have left in the store: waits at most `patience` for each further note of a host
/// that has said anything. `patients` have their names.
Examination collect(Store& store, std::vector<Patient> patients, Duration patience);

}  // namespace gradwire
