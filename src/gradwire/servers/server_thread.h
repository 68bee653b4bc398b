#pragma once

#include <exception>
#include <thread>

#include "gradwire/comm/communicator.h"
#include "gradwire/servers/server.h"

namespace gradwire::servers {

/// Runs a server on a thread of its own, beside a worker.
class ServerThread {
 public:
  /// Both must outlive this. If the server fails, aborts `pairs` with the reason.
  ServerThread(Communicator& pairs, Server& server);
  /// Waits until all workers have left.
  ~ServerThread();

  /// Waits until all workers have left. Throws what the server threw.
  void join();

 private:
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace gradwire::servers
