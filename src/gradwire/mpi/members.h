#pragma once

#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"

namespace gradwire::mpi {

/// The store of a group for a rank on gradwire's own engine, which tells the other ranks so. Ranks
/// over MPI refuse this one by it; then its waits end with mismatch, too.
class OwnEngineStore final : public bootstrap::Store {
 public:
  /// `store` must outlive it. Throws Exception(disconnected).
  OwnEngineStore(bootstrap::Store& store, std::string scope, Rank rank);

  Status set(const std::string& key, const std::string& value) override {
    return store_.set(key, value);
  }
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  bootstrap::Store& store_;
  std::string scope_;
  Rank rank_;
};

/// Tells that this rank uses MPI. Throws Exception: mismatch, on every rank over MPI, if another
/// rank does not (on the others by OwnEngineStore); timeout, which names the missing ranks;
/// disconnected. Must be called before MPI is initialized, which waits for all ranks of the job
/// without a timeout.
void agree_on_engine(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job,
                     Duration timeout);

/// Returns the ranks in MPI_COMM_WORLD of all members of a group over MPI; `own`: this one's.
/// Throws Exception: timeout, which names the missing ranks; disconnected.
std::vector<Rank> agree_on_members(bootstrap::Store& store, const std::string& scope,
                                   const bootstrap::Job& job, Rank own, Duration timeout);

}  // namespace gradwire::mpi
