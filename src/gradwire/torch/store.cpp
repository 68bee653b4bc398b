#include "gradwire/torch/store.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

namespace gradwire {
namespace {

constexpr const char* kPrefix = "gradwire/";

std::chrono::milliseconds milliseconds_of(Duration duration) {
  return std::chrono::ceil<std::chrono::milliseconds>(duration);
}

}  // namespace

Status C10dStore::set(const std::string& key, const std::string& value) {
  try {
    const std::lock_guard lock(mutex_);
    store_->set(kPrefix + key, std::vector<std::uint8_t>(value.begin(), value.end()));
    return {};
  } catch (const std::exception& error) {
    return failure(ErrorKind::disconnected,
                   fmt::format("the launcher's store did not take '{}': {}", key, error.what()));
  }
}

Result<std::string> C10dStore::get(const std::string& key, Duration timeout) {
  try {
    const std::lock_guard lock(mutex_);
    store_->wait({kPrefix + key}, milliseconds_of(timeout));
    const auto value = store_->get(kPrefix + key);
    return std::string(value.begin(), value.end());
  } catch (const c10::DistStoreError& error) {
    return failure(ErrorKind::timeout,
                   fmt::format("nobody set '{}' in the launcher's store within {} ms: {}", key,
                               milliseconds_of(timeout).count(), error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return failure(ErrorKind::disconnected,
                   fmt::format("the launcher's store did not give '{}': {}", key, error.what()));
  }
}

c10::intrusive_ptr<c10d::Store> open_launcher_store(const Job& job,
                                                    std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = job.master_port;
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(job.master_address, options);
  } catch (const std::exception& error) {
    throw Exception(ErrorKind::disconnected,
                    fmt::format("rank {}: no c10d store of {} at {}:{}: {}", job.rank, job.launcher,
                                job.master_address, job.master_port, error.what()));
  }
}

}  // namespace gradwire
