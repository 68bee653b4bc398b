#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/servers/server.h"
#include "gradwire/servers/server_thread.h"
#include "gradwire/train/servers/torch_shards.h"

namespace gradwire {

/// This process's parameter server.
class LocalServer {
 public:
  LocalServer(std::shared_ptr<Communicator> pairs, TorchShards shards,
              const servers::ServerOptions& options, std::shared_ptr<const Clock> clock)
      : pairs_(std::move(pairs)),
        shards_(std::move(shards)),
        clock_(std::move(clock)),
        server_(pairs_, shards_, options, *clock_) {}

  /// If an exception is unwinding the stack, and its worker has not left, it will not: ends the
  /// server.
  ~LocalServer() {
    if (thread_ && !left_ && std::uncaught_exceptions() > 0) {
      pairs_->abort("its worker has failed");
    }
  }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  /// Serves until all workers have left. Throws what servers::Server::run() throws.
  void run() { server_.run(); }
  /// Serves on a thread of its own, beside a worker.
  void start() {
    thread_.emplace(*pairs_, [this] { server_.run(); });
  }
  /// Call when the worker beside it has left.
  void worker_left() { left_ = true; }

 private:
  std::shared_ptr<Communicator> pairs_;
  TorchShards shards_;
  std::shared_ptr<const Clock> clock_;
  servers::Server server_;
  std::optional<servers::ServerThread> thread_;
  bool left_ = false;
};

}  // namespace gradwire
