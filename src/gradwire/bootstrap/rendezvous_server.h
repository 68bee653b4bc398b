#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/listener.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {

/// The purpose of connections to the store (bootstrap/handshake.h).
inline constexpr const char* kStorePurpose = "store";

/// Server of the rendezvous store, on rank 0: a key-value table with its own thread, for clients
/// that prove the job's secret (bootstrap/handshake.h). Its memory is bounded (store_protocol.h),
/// and each rank has one connection. A rank that has finished and connects again gets
/// Verdict::later, because it means the server of the job's next communicator on the same port.
///
/// A rank that leaves before rank 0 has sealed the store may be restarted and join again; its keys
/// are erased. After that, the start succeeds when all ranks have completed it, or fails on all of
/// them. The first rank that reports an error, leaves, or whose host falls silent is named to all
/// others. Two live processes with the same rank, or a different world size, fail the start at any
/// time.
class RendezvousServer {
 public:
  /// The ranks that are served.
  struct ServedJob {
    std::string secret;
    int world_size = 1;
    std::string job_id = {};  ///< Job::job_id; ranks with another one are rejected.
  };

  /// Serves ranks that connect through `listener`. Fails with system.
  static Result<std::unique_ptr<RendezvousServer>> start(const net::HostNetwork& network,
                                                         std::unique_ptr<Listener> listener,
                                                         ServedJob job);

  /// Stops immediately; clients see their connections close.
  ~RendezvousServer() = default;
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  /// Waits until no client is connected and, if the start has failed, all ranks know it. Returns
  /// false if the deadline passes first.
  bool wait_until_idle(net::Deadline deadline);

 private:
  class Loop;

  struct Progress {
    std::mutex mutex;
    int connected = 0;
    int unnotified = 0;  ///< Ranks that have not been told of the failed start.
  };

  RendezvousServer() = default;

  Progress progress_;
  std::unique_ptr<net::LoopThread> thread_;
};

}  // namespace gradwire::bootstrap
