#pragma once

#include <string>
#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/cli/doctor/endpoint.h"
#include "gradwire/cli/doctor/facts.h"

namespace gradwire {

/// Examines this host and its paths to the others, as number job.rank of job.world_size hosts that
/// all do the same, and reports through the store. `names`: of the hosts, by number; empty if hosts
/// are known only by rank. Fails if the store is gone.
Status examine_from_here(const Job& job, const std::vector<std::string>& names, MasterPort port,
                         Store& store);

/// Collects the hosts' reports from the store; waits at most `patience` for each further entry of a
/// host that has reported at all. `patients` already have their names.
Examination collect(Store& store, std::vector<Patient> patients, Duration patience);

}  // namespace gradwire
