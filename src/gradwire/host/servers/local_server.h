#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/servers/mirror.h"
#include "gradwire/servers/server.h"
#include "gradwire/servers/server_thread.h"

namespace gradwire {

/// This process's parameter server.
class LocalServer {
 public:
  /// `mirror`, if given: the server's updates are mirrored so.
  LocalServer(std::shared_ptr<Communicator> pairs, std::unique_ptr<servers::ServedShards> shards,
              const servers::ServerOptions& options, std::shared_ptr<const Clock> clock,
              std::optional<servers::MirroredShards::Options> mirror = std::nullopt)
      : pairs_(std::move(pairs)), shards_(std::move(shards)), clock_(std::move(clock)) {
    if (mirror) {
      mirror->dealing = [this] { return server_->dealing(); };
      mirrored_.emplace(*shards_, std::move(*mirror));
    }
    servers::ServedShards* const mirrored = mirrored_ ? &*mirrored_ : nullptr;
    server_.emplace(pairs_, mirrored != nullptr ? *mirrored : *shards_, options, *clock_);
  }

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
  void run() {
    server_->run();
    if (mirrored_) mirrored_->end();
  }
  /// Serves on a thread of its own, beside a worker.
  void start() {
    thread_.emplace(*pairs_, [this] { run(); });
  }
  /// Call when the worker beside it has left.
  void worker_left() { left_ = true; }

 private:
  std::shared_ptr<Communicator> pairs_;
  std::unique_ptr<servers::ServedShards> shards_;
  std::shared_ptr<const Clock> clock_;
  std::optional<servers::MirroredShards> mirrored_;
  std::optional<servers::Server> server_;
  std::optional<servers::ServerThread> thread_;
  bool left_ = false;
};

/// The server that mirrors another one, and takes its place if that is lost.
class StandbyServer {
 public:
  /// `primary`: the rank of the other server, which `shards` is like.
  StandbyServer(const std::shared_ptr<Communicator>& pairs,
                std::unique_ptr<servers::ServedShards> shards, Rank primary,
                servers::ServerOptions options, std::shared_ptr<const Clock> clock)
      : shards_(std::move(shards)),
        clock_(std::move(clock)),
        mirror_(pairs, primary, *shards_),
        server_(pairs, *shards_, standing_by(std::move(options)), *clock_),
        thread_(*pairs, [this] { server_.run(); }) {}

  /// Waits until all workers have left.
  void join() { thread_.join(); }

 private:
  servers::ServerOptions standing_by(servers::ServerOptions options) {
    options.adopt = [this] { return mirror_.adopt(); };
    return options;
  }

  std::unique_ptr<servers::ServedShards> shards_;
  std::shared_ptr<const Clock> clock_;
  servers::Mirror mirror_;
  servers::Server server_;
  servers::ServerThread thread_;
};

}  // namespace gradwire
