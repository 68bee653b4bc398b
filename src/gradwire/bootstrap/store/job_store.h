#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/fork.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"
#include "gradwire/bootstrap/store/store_server.h"
#include "gradwire/bootstrap/store/store_session.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"

namespace gradwire::bootstrap {

/// A rank's client of the store that a job keeps while it runs. It provides what c10d's process
/// groups need from a store, restricted to peers that know the job's secret. Rank 0 serves it on
/// the job's master address and port only; with GRADWIRE_PORT, behind the port shared by the ranks
/// of the host. Thread-safe: each pending request has its own session, so a waiting thread does
/// not block others. A forked child must not use it; there the client does nothing.
class JobStore final : public Store {
 public:
  /// Fails with invalid_argument (no secret, a secret that is too short, a port in use, ...),
  /// timeout, refused, mismatch, corrupted or system.
  static Result<std::unique_ptr<JobStore>> open(std::shared_ptr<const net::HostNetwork> network,
                                                const Job& job, net::Deadline deadline);

  /// close(false)
  ~JobStore() override;
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  /// Leaves the store; later requests fail. Rank 0 first waits up to 2 s for the other ranks to
  /// leave, unless this rank has `failed`, and then stops the server. A second call has no effect.
  void close(bool failed);

  /// All of these fail with disconnected or invalid_argument (value too large, store full, or add()
  /// on a value that is not a number); those with a timeout also fail with timeout.
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;
  Status wait(const std::string& key, Duration timeout);
  Result<bool> has(const std::string& key);
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  Status append(const std::string& key, const std::string& value);
  /// Does the same as KeyTable::compare_set().
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);
  Result<bool> erase(const std::string& key);
  Result<std::int64_t> count();

  /// Returns true if this client is the one that open(job) would return.
  bool is_of(const Job& job) const {
    return job.rank == job_.rank && job.world_size == job_.world_size &&
           job.master_address == job_.master_address && job.master_port == job_.master_port;
  }

  const std::string& host() const { return job_.master_address; }
  std::uint16_t port() const { return job_.master_port; }

 private:
  JobStore(std::shared_ptr<const net::HostNetwork> network, const Job& job);
  Result<StoreSession> take_session();
  void give_back(std::optional<StoreSession> session);
  Result<StoreResponse> ask(const StoreRequest& request);
  Result<StoreResponse> await_key(StoreOperation operation, const std::string& key,
                                  Duration timeout);
  Error lost(const Error& error);

  std::shared_ptr<const net::HostNetwork> network_;
  Job job_;
  ForkGuard fork_;
  std::unique_ptr<StoreServer> server_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<StoreSession> idle_;
  int sessions_ = 0;  ///< Idle ones and those in use.
  bool closed_ = false;
  /// open() succeeded, and the store was neither left nor lost.
  std::atomic<bool> opened_ = false;
  std::optional<Error> lost_;  ///< Set when the store is lost for good.
};

}  // namespace gradwire::bootstrap
