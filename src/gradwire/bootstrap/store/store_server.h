#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/handshake/listener.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {

/// Key-value store for clients that prove a secret (bootstrap/handshake/handshake.h): a table
/// (bootstrap/store/key_table.h) with its own thread. A client may have kMaxConnections. One that
/// has left and connects again gets Verdict::later, because it means the next store on the same
/// port.
///
/// A server may also coordinate one start of a job (bootstrap/store/start_state.h).
class StoreServer {
 public:
  static constexpr int kMaxConnections = 16;

  struct Options {
    /// Returns the secret that a client must prove. Clients are ranks, or others: they claim a
    /// world size of kNoWorld, and an id not below `world_size`.
    Credentials credentials;
    int world_size = 1;
    /// The id of the job that starts (Job::job_id); nullopt: the server coordinates no start.
    std::optional<std::string> starts_job = {};
  };

  /// Serves clients that connect through `listener`. Fails with system.
  static Result<std::unique_ptr<StoreServer>> start(const net::HostNetwork& network,
                                                    std::unique_ptr<Listener> listener,
                                                    Options options);

  /// Stops immediately; clients see their connections close.
  ~StoreServer() = default;
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Waits until no client is connected and, if the start has failed, all ranks know it. Returns
  /// false if the deadline passes first.
  bool wait_until_idle(net::Deadline deadline);

 private:
  class Loop;

  struct Presence {
    std::mutex mutex;
    std::size_t connected = 0;
    int unnotified = 0;  ///< StartState::unnotified()
  };

  StoreServer() = default;

  Presence presence_;
  std::unique_ptr<net::LoopThread> thread_;
};

}  // namespace gradwire::bootstrap
