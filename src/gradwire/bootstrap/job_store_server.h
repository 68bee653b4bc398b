#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/listener.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {

/// Server of the store that a job keeps while it runs, on rank 0: a key-value table with its own
/// thread, for clients that prove the job's secret (bootstrap/handshake.h). A rank may have
/// kMaxConnections. A rank that has left and connects again gets Verdict::later, because it means
/// the job's next store on the same port. (bootstrap/rendezvous_server.h serves a single start.)
class JobStoreServer {
 public:
  static constexpr int kMaxConnections = 16;

  /// Serves a job of `world_size` ranks that connect through `listener`. Fails with system.
  static Result<std::unique_ptr<JobStoreServer>> start(const net::HostNetwork& network,
                                                       std::unique_ptr<Listener> listener,
                                                       std::string secret, int world_size);

  /// Stops immediately; clients see their connections close.
  ~JobStoreServer() = default;
  JobStoreServer(const JobStoreServer&) = delete;
  JobStoreServer& operator=(const JobStoreServer&) = delete;

  /// Waits until no client is connected. Returns false if the deadline passes first.
  bool wait_until_idle(net::Deadline deadline);

 private:
  class Loop;

  struct Presence {
    std::mutex mutex;
    std::size_t connected = 0;
  };

  JobStoreServer() = default;

  Presence presence_;
  std::unique_ptr<net::LoopThread> thread_;
};

}  // namespace gradwire::bootstrap
