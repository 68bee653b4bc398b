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
///
/// A rank that leaves before rank 0 has sealed the store may be started again and join anew; what
/// it had set goes with it. From then on the start succeeds when all ranks have completed it, or
/// fails on all: the first rank that says why it cannot go on, that leaves or whose host falls
/// silent is named to all others. Two live processes of one rank, and a rank of another world size,
/// end the start at any time.
class RendezvousServer {
 public:
  /// Whom it serves.
  struct Party {
    std::string secret;
    int world_size = 1;
    std::string job_id = {};  ///< Ranks that have another one are sent away; Job::job_id.
  };

  /// Serves ranks that come in at `door`. Error: system.
  static Result<std::unique_ptr<RendezvousServer>> start(std::unique_ptr<Door> door, Party party);

  /// Stops at once; clients see the connection close.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  /// Waits until no client is connected and, if the start has failed, all ranks know. False if the
  /// deadline passes.
  bool wait_until_alone(Deadline deadline);

 private:
  class Loop;

  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    int connected = 0;
    int to_be_told = 0;  ///< Ranks that do not know yet that the start has failed.
  };

  RendezvousServer(std::unique_ptr<Door> door, Party party, Socket stop);

  Socket stop_;
  Progress progress_;
  std::thread thread_;
};

}  // namespace gradwire
