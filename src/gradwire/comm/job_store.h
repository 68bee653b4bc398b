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
#include "gradwire/comm/job.h"
#include "gradwire/comm/job_store_protocol.h"
#include "gradwire/comm/job_store_server.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/message_stream.h"

namespace gradwire {

/// A rank's end of the store that a job keeps for as long as it runs: what c10d's process groups
/// need from a store, for those who know the job's secret. Rank 0 serves it at the job's master
/// address and port, on that address alone; with GRADWIRE_PORT behind the port that the ranks of
/// the host share. Thread-safe: threads that wait do not hold others up, as each request under way
/// has a connection of its own. A forked child must not use it; there its end does nothing.
class JobStore final : public Store {
 public:
  /// Errors: invalid_argument (no secret, or one too short; the port is taken; ...), timeout,
  /// refused, mismatch, corrupted, system.
  static Result<std::unique_ptr<JobStore>> open(const Job& job, Deadline deadline);

  /// close(false)
  ~JobStore() override;
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  /// Leaves; what is asked for later fails. Rank 0 first waits for the others to leave, 2 s at most
  /// and not if this rank has `failed`, then ends the store. The second call does nothing.
  void close(bool failed);

  /// Errors of all of these: disconnected, invalid_argument (too large, the store is full, or no
  /// number to add to); of those with a timeout also timeout.
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;
  Status wait(const std::string& key, Duration timeout);
  Result<bool> has(const std::string& key);
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  Status append(const std::string& key, const std::string& value);
  /// As KeyTable::compare_set.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);
  Result<bool> erase(const std::string& key);
  Result<std::int64_t> count();

  /// Whether it is the end that this job would open.
  bool is_of(const Job& job) const {
    return job.rank == job_.rank && job.world_size == job_.world_size &&
           job.master_address == job_.master_address && job.master_port == job_.master_port;
  }

  const std::string& host() const { return job_.master_address; }
  std::uint16_t port() const { return job_.master_port; }

 private:
  explicit JobStore(const Job& job);
  Result<std::unique_ptr<MessageStream>> take_connection();
  void give_back(std::unique_ptr<MessageStream> connection);
  Result<JobStoreResponse> ask(const JobStoreRequest& request);
  Result<JobStoreResponse> await_key(StoreOperation operation, const std::string& key,
                                     Duration timeout);
  Error lost(const Error& error);

  Job job_;
  ForkGuard fork_;
  std::unique_ptr<JobStoreServer> server_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<std::unique_ptr<MessageStream>> idle_;
  int connections_ = 0;  ///< Idle ones and those in use.
  bool closed_ = false;
  std::atomic<bool> opened_ = false;  ///< And neither left nor lost yet.
  std::optional<Error> lost_;         ///< Why the store is gone for good.
};

}  // namespace gradwire
