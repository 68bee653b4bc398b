#include "gradwire/torch/store.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire {
namespace {

constexpr const char* kPrefix = "gradwire/";

/// TCPStore logs each wait that times out, so shorter ones poll.
constexpr Duration kShortWait = std::chrono::milliseconds(200);
constexpr Duration kPollInterval = std::chrono::milliseconds(5);

std::chrono::milliseconds whole_milliseconds(Duration duration) {
  return std::chrono::ceil<std::chrono::milliseconds>(duration);
}

/// Returns true once the store has the key, false if the deadline passes before.
bool appears(c10d::Store& store, const std::string& key, const net::HostNetwork& network,
             const net::Deadline& deadline) {
  while (!store.check({key})) {
    if (deadline.passed()) return false;
    network.pause(std::min(kPollInterval, deadline.left()));
  }
  return true;
}

tl::unexpected<Error> not_set(const std::string& key, Duration timeout) {
  return failure(ErrorKind::timeout,
                 fmt::format("no rank set '{}' in the launcher's store within {} ms", key,
                             whole_milliseconds(timeout).count()));
}

}  // namespace

Status C10dStore::set(const std::string& key, const std::string& value) {
  try {
    const std::lock_guard lock(mutex_);
    store_->set(kPrefix + key, std::vector<std::uint8_t>(value.begin(), value.end()));
    return {};
  } catch (const std::exception& error) {
    return failure(ErrorKind::disconnected,
                   fmt::format("cannot set '{}' in the launcher's store: {}", key, error.what()));
  }
}

Result<std::string> C10dStore::get(const std::string& key, Duration timeout) {
  const std::lock_guard lock(mutex_);
  const net::KernelNetwork network;
  const net::Deadline deadline = net::Deadline::after(network.clock(), timeout);
  try {
    if (timeout > kShortWait) {
      store_->wait({kPrefix + key}, whole_milliseconds(timeout));
    } else if (!appears(*store_, kPrefix + key, network, deadline)) {
      return not_set(key, timeout);
    }
    const auto value = store_->get(kPrefix + key);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& error) {
    // FileStore throws no distinct type on timeout.
    const auto* of_store = dynamic_cast<const c10::DistStoreError*>(&error);
    if (of_store == nullptr && !deadline.passed()) {
      return failure(
          ErrorKind::disconnected,
          fmt::format("cannot get '{}' from the launcher's store: {}", key, error.what()));
    }
    return not_set(key, timeout);
  }
}

c10::intrusive_ptr<c10d::Store> open_launcher_store(const bootstrap::Job& job,
                                                    std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = job.master_port;
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(job.master_address, options);
  } catch (const std::exception& error) {
    throw Exception(
        ErrorKind::disconnected,
        fmt::format("rank {}: cannot connect to the c10d store of {} at {}:{}: {}", job.rank,
                    job.launcher, job.master_address, job.master_port, error.what()));
  }
}

}  // namespace gradwire
