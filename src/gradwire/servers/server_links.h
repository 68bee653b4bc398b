#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/servers/messages.h"

namespace gradwire::servers {

/// A worker's way to each server. With mirrors, the server that mirrors a lost one takes its place.
/// Thread-safe.
class ServerLinks {
 public:
  struct Link {
    Rank rank = 0;
    int tags = 0;        ///< Added to all tags.
    int generation = 0;  ///< Number of servers that were lost here.
  };
  struct Options {
    Placement placement;
    std::uint64_t fingerprint = 0;  ///< The layout's, for hello.
    bool mirrors = false;
    /// Time for a mirror to notice that a server is lost. Dead peers are noticed within 5 s.
    Duration patience = std::chrono::seconds(10);
    /// With mirrors: what Request::join says of a server that is lost, and what forgets clocks and
    /// versions of it when another one has taken its place. Called under the lock of hold().
    std::function<std::vector<std::int64_t>(int server)> known;
    std::function<void(int server)> forget;
  };

  ServerLinks(std::shared_ptr<Communicator> pairs, Options options);

  /// Greets all servers. Throws what communication throws, among it why a server refuses this
  /// worker.
  void greet();
  /// Tells all servers, and those that mirror them, that this worker ends.
  void leave();

  Link of(int server) const;
  /// No server is replaced while this is held.
  std::unique_lock<std::mutex> hold() const { return std::unique_lock(mutex_); }
  /// The link, under hold().
  const Link& held(int server) const { return links_[static_cast<std::size_t>(server)]; }

  /// Replaces the server to which `lost` was the link by its mirror, unless another thread has done
  /// so. Throws `error`, with the reason, if the mirror does not stand in.
  void replace(int server, const Link& lost, const Error& error);
  /// Returns `action(link)`, and tries again with the server that replaces a lost one.
  template <class Action>
  auto with_server(int server, const Action& action) {
    for (;;) {
      const Link link = of(server);
      Error error;
      try {
        return action(link);
      } catch (const Exception& e) {
        error = {e.kind(), e.what()};
      }
      replace(server, link, error);
    }
  }

  void ask(const Link& link, Request request) const;
  void wait_for_reply(const Link& link, const OperationOptions& options = {}) const;
  std::vector<std::int64_t> receive_integers(const Link& link) const;
  /// Asks, and receives integers.
  std::vector<std::int64_t> integers_of(int server, const Request& request);

 private:
  Request hello() const {
    return {.kind = Request::Kind::hello, .value = static_cast<std::int64_t>(options_.fingerprint)};
  }
  Link standby_of(int server) const;

  std::shared_ptr<Communicator> pairs_;
  Options options_;
  mutable std::mutex mutex_;
  std::vector<Link> links_;  ///< By server.
};

}  // namespace gradwire::servers
