#pragma once

#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"

namespace gradwire::mpi {

/// Tells the other members of a group, over its store, that this rank uses an engine. Does not
/// wait. Ranks over MPI refuse others by it.
void tell_engine(bootstrap::Store& store, const std::string& scope, Rank rank,
                 const std::string& engine);

/// Returns the ranks in MPI_COMM_WORLD of all members of a group over MPI; `own`: this one's.
/// Throws Exception: mismatch, on every rank over MPI, if one uses another engine; timeout, which
/// names the missing ranks; disconnected.
std::vector<Rank> agree_on_members(bootstrap::Store& store, const std::string& scope,
                                   const bootstrap::Job& job, Rank own, Duration timeout);

}  // namespace gradwire::mpi
