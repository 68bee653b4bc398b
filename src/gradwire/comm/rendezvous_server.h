#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/door.h"

namespace gradwire {

/// The purpose of connections to the store (net/handshake.h).
inline constexpr const char* kStorePurpose = "store";

/// The rendezvous store itself, on rank 0: a key-value table on a thread of its own, for clients
/// that prove the job's secret (net/handshake.h). Bounded: see store_protocol.h,
/// and one connection a rank. A rank that has said it is finished and comes again is told to come
/// later: it means the server of the job's next communicator, at the same port.
class RendezvousServer {
 public:
  /// Serves a job of `world_size` ranks that come in at `door`. Error: system.
  static Result<std::unique_ptr<RendezvousServer>> start(std::unique_ptr<Door> door,
                                                         std::string secret, int world_size);

  /// Stops at once; clients see the connection close.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  /// Waits until no client is connected. False if the deadline passes.
  bool wait_until_alone(Deadline deadline);

 private:
  class Loop;

  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    int connected = 0;
  };

  RendezvousServer(std::unique_ptr<Door> door, std::string secret, int world_size, Socket stop);

  Socket stop_;
  Progress progress_;
  std::thread thread_;
};

}  // namespace gradwire
