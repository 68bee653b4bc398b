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

/// Tells that this rank uses MPI. Throws Exception: mismatch, on every rank over MPI, if another
/// rank does not; timeout, which names the missing ranks; disconnected. Must be called before MPI
/// is initialized, which waits for all ranks of the job without a timeout.
void agree_on_engine(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job,
                     Duration timeout);

/// Returns the ranks in MPI_COMM_WORLD of all members of a group over MPI; `own`: this one's.
/// Throws Exception: timeout, which names the missing ranks; disconnected.
std::vector<Rank> agree_on_members(bootstrap::Store& store, const std::string& scope,
                                   const bootstrap::Job& job, Rank own, Duration timeout);

}  // namespace gradwire::mpi
