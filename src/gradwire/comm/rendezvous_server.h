#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// The rendezvous store itself, on rank 0: a key-value table on a thread of its own, for clients
/// that prove the job's secret (net/handshake.h, purpose "store"). Bounded: see store_protocol.h,
/// and one connection a rank. A rank that has said it is finished and comes again is told to come
/// later: it means the server of the job's next communicator, at the same port.
class RendezvousServer {
 public:
  /// Serves a job of `world_size` ranks on a listening socket (of listen_on). Error: system.
  static Result<std::unique_ptr<RendezvousServer>> start(Socket listener, std::string secret,
                                                         int world_size);

  /// Stops at once; clients see the connection close.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  SocketAddress address() const { return address_; }

  /// Waits until no client is connected. False if the deadline passes.
  bool wait_until_alone(Deadline deadline);

 private:
  class Loop;

  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    int connected = 0;
  };

  RendezvousServer(Socket listener, std::string secret, int world_size, Socket stop);

  SocketAddress address_;
  Socket stop_;
  Progress progress_;
  std::thread thread_;
};

}  // namespace gradwire
