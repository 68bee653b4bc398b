#pragma once

#include <functional>
#include <list>
#include <memory>

#include "gradwire/net/handshake.h"
#include "gradwire/net/poll_set.h"

namespace gradwire {

/// A connection that has proved that it belongs to the job.
struct Admitted {
  Socket socket;
  Claims claims;
};

/// Accepts connections on a listening socket and shakes hands with many at once, so that silent or
/// slow strangers keep nobody waiting. Each has kHandshakeTimeout; when there are too many, the
/// oldest goes, which cannot be one that answers at once. Who fails is logged (of very many, only
/// some) and forgotten.
/// Moved on by its owner's poll loop; one thread.
class Gate {
 public:
  struct Options {
    SharedSecret shared;
    int world_size = 1;
    Duration timeout = kHandshakeTimeout;
    /// Beyond the ranks of the job.
    std::size_t most_strangers = 128;
  };

  /// `admit` decides about each client that has proved its claims, and `enter` takes the connection
  /// at once if it said Verdict::accepted.
  Gate(Socket listener, Options options, ServerHandshake::Admit admit,
       std::function<void(Admitted)> enter);

  /// Adds what it waits for to the poll set; the answer is when it must be called even if nothing
  /// happens.
  Deadline watch(PollSet& set, Deadline deadline);

  /// Acts on what the poll set reported. Error: system, when it cannot accept at all.
  Status advance(const PollSet& set);

  const Socket& listener() const { return listener_; }

 private:
  struct Pending {
    std::unique_ptr<ServerHandshake> handshake;
    Deadline deadline;
    SocketAddress from;
    std::size_t place = 0;
  };

  Status accept_all();
  void begin(Accepted accepted);
  void log_refusal(const std::string& reason);
  bool move_on(Pending& pending);

  Socket listener_;
  Options options_;
  ServerHandshake::Admit admit_;
  std::function<void(Admitted)> enter_;
  std::list<Pending> pending_;  ///< Oldest first.
  std::size_t listener_place_ = 0;
  std::uint64_t refusals_ = 0;
};

}  // namespace gradwire
