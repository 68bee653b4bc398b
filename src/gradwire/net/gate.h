#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "gradwire/net/door.h"
#include "gradwire/net/handshake.h"
#include "gradwire/net/poll_set.h"
#include "gradwire/net/refusal_log.h"

namespace gradwire {

/// A connection that has proved that it belongs to the job.
struct Admitted {
  Socket socket;
  Claims claims;
  SessionKey key = {};  ///< Handshake::session_key().
};

/// Takes the connections that come in at some doors and shakes hands with many at once, so that
/// silent or slow strangers keep nobody waiting. Each has kHandshakeTimeout; when there are too
/// many, the oldest goes that has said nothing yet, or else the oldest, which cannot be one that
/// answers at once. Who fails is logged (of very many, only some) and forgotten. When this process
/// is short of descriptors, strangers go first, and the doors then rest for a moment. Moved on by
/// its owner's poll loop; one thread.
class Gate {
 public:
  struct Options {
    SharedSecret shared;
    int world_size = 1;        ///< Or kAnyWorldSize.
    std::size_t expected = 1;  ///< Connections of the job that may come at once.
    Duration timeout = kHandshakeTimeout;
    /// Beyond those expected; fewer if this process may have few descriptors.
    std::size_t most_strangers = 128;
    /// For so long nothing could be accepted, though nobody was left to be sent away: then
    /// advance() fails.
    Duration shortage = std::chrono::seconds(5);
  };

  /// `admit` decides about each client that has proved its claims, and `enter` takes the connection
  /// at once if it said Verdict::accepted.
  Gate(Doors doors, Options options, ServerHandshake::Admit admit,
       std::function<void(Admitted)> enter);

  /// Adds what it waits for to the poll set; the answer is when it must be called even if nothing
  /// happens.
  Deadline watch(PollSet& set, Deadline deadline);

  /// Acts on what the poll set reported. Error: system, when it cannot accept for long, and those
  /// of a door that has closed.
  Status advance(const PollSet& set);

 private:
  struct Entrance {
    std::unique_ptr<Door> door;
    std::optional<std::size_t> place;  ///< None while it rests.
    Time rests_until = {};
    std::optional<Time> short_since;
  };

  struct Pending {
    std::unique_ptr<ServerHandshake> handshake;
    Deadline deadline;
    SocketAddress from;
    std::size_t place = 0;
  };

  Status accept_all(Entrance& entrance);
  Status rest(Entrance& entrance, const Error& error);
  void make_room();
  void begin(Accepted accepted);
  bool move_on(Pending& pending);

  std::vector<Entrance> entrances_;
  Options options_;
  ServerHandshake::Admit admit_;
  std::function<void(Admitted)> enter_;
  std::list<Pending> pending_;  ///< Oldest first.
  RefusalLog refusals_;
};

}  // namespace gradwire
