#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"

namespace gradwire {

/// A c10d store provided by the user's launcher, as a Store. Keys get the prefix "gradwire/".
class C10dStore final : public bootstrap::Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  std::mutex mutex_;  ///< c10d's clients support one request at a time.
  c10::intrusive_ptr<c10d::Store> store_;
};

/// Connects to the TCPStore that torchrun serves at the job's master address and port. Throws
/// Exception(disconnected), which names both, if no connection is made within `timeout`.
c10::intrusive_ptr<c10d::Store> open_launcher_store(const bootstrap::Job& job,
                                                    std::chrono::milliseconds timeout);

}  // namespace gradwire
