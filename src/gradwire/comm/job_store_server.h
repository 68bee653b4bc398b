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

/// The store that a job keeps for as long as it runs, on rank 0: a table of keys and values on a
/// thread of its own, for clients that prove the job's secret (net/handshake.h). A rank may have
/// kMostConnections. One that has said it leaves and comes again is told to come later: it means
/// the next store of the job, at the same port. (comm/rendezvous_server.h is for one start.)
class JobStoreServer {
 public:
  static constexpr int kMostConnections = 16;

  /// Serves a job of `world_size` ranks that come in at `door`. Error: system.
  static Result<std::unique_ptr<JobStoreServer>> start(std::unique_ptr<Door> door,
                                                       std::string secret, int world_size);

  /// Stops at once; clients see the connection close.
  ~JobStoreServer();
  JobStoreServer(const JobStoreServer&) = delete;
  JobStoreServer& operator=(const JobStoreServer&) = delete;

  /// Waits until no client is connected. False if the deadline passes.
  bool wait_until_alone(Deadline deadline);

 private:
  class Loop;

  struct Presence {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t connected = 0;
  };

  JobStoreServer(std::unique_ptr<Door> door, std::string secret, int world_size, Socket stop);

  Socket stop_;
  Presence presence_;
  std::thread thread_;
};

}  // namespace gradwire
