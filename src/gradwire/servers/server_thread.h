#pragma once

#include <exception>
#include <functional>
#include <thread>

#include "gradwire/comm/communicator.h"

namespace gradwire::servers {

/// Runs a server on a thread of its own, beside a worker.
class ServerThread {
 public:
  /// `serve`: a server's run(). `pairs` and the server must outlive this. If the server fails,
  /// aborts `pairs` with the reason.
  ServerThread(Communicator& pairs, std::function<void()> serve);
  /// Waits until all workers have left.
  ~ServerThread();

  /// Waits until all workers have left. Throws what the server threw.
  void join();

 private:
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace gradwire::servers
