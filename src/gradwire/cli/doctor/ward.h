#pragma once

#include <optional>

#include "gradwire/cli/doctor/facts.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// The doctor as the ranks of a job that something else has started: every rank calls it, and
/// leaves what it finds in a store that rank 0 serves at the job's master address and port. The
/// result is rank 0's alone. Errors: those of RendezvousStore::connect(); invalid_argument, when
/// the launcher has a store of its own there.
Result<std::optional<Examination>> examine_in_job(const Job& job);

}  // namespace gradwire
