#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/job_store.h"

namespace gradwire {

/// The job's store (bootstrap/store/job_store.h) as a c10d::Store. Only clients that know the job's
/// secret can use it, on the named address only. Thread-safe. Throws c10::DistStoreError on
/// timeouts, as c10d's stores do, and Exception for JobStore's other errors.
class GradwireStore final : public c10d::Store {
 public:
  /// Opens the store, which rank 0 serves. Waits for rank 0 as long as a rendezvous does, at most
  /// `timeout`: c10d's default of 30 minutes is one of operations. `timeout` then applies to
  /// get(), and to wait() without a timeout. Throws Exception as JobStore::open does.
  static c10::intrusive_ptr<GradwireStore> open(const bootstrap::Job& job,
                                                std::chrono::milliseconds timeout);

  GradwireStore(std::shared_ptr<bootstrap::JobStore> job_store, std::chrono::milliseconds timeout)
      : Store(timeout), job_store_(std::move(job_store)) {}

  const std::string& host() const { return job_store_->host(); }
  std::uint16_t port() const { return job_store_->port(); }

  /// Returns true if `job` would open this store.
  bool is_of(const bootstrap::Job& job) const { return job_store_->is_of(job); }

  /// Closes the store as JobStore::close does, for clones as well.
  void close(bool failed) { job_store_->close(failed); }

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  std::shared_ptr<bootstrap::JobStore> job_store_;
};

}  // namespace gradwire
