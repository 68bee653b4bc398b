#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/handshake/listener.h"
#include "gradwire/bootstrap/handshake/refusal_log.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::bootstrap {

/// An authenticated connection of the job.
struct AuthenticatedConnection {
  net::Socket socket;
  Claims claims;
  net::SessionKey key = {};  ///< Handshake::session_key().
};

/// Handshake server: accepts the connections of several listeners and performs many handshakes
/// concurrently, so that silent or slow unauthenticated peers delay no other connection. Each
/// handshake has a timeout. If there are too many, the oldest connection without a first message is
/// dropped, or else the oldest one; a peer that responds promptly is never the oldest. Failures are
/// logged (rate-limited). If this process runs out of descriptors, unauthenticated peers are
/// dropped first, and then the listeners pause for a moment. Driven by its owner's poll loop; not
/// thread-safe.
class HandshakeServer {
 public:
  struct Options {
    Credentials credentials;
    int world_size = 1;        ///< See ServerHandshake.
    std::size_t expected = 1;  ///< Concurrent connections expected from the job.
    Duration timeout = kHandshakeTimeout;
    /// Maximum unauthenticated peers in addition to `expected`; fewer under a low descriptor limit.
    std::size_t max_unauthenticated = 128;
    /// advance() fails after this time in which nothing could be accepted although no peer was left
    /// to drop.
    Duration shortage = std::chrono::seconds(5);
  };

  /// `clock` must outlive the server. `admit` decides on each client that has proved its claims.
  /// `on_connection` takes it immediately if the verdict is Verdict::accepted.
  HandshakeServer(const Clock& clock, Listeners listeners, Options options,
                  ServerHandshake::Admit admit,
                  std::function<void(AuthenticatedConnection)> on_connection);

  /// Adds the sockets to the poll set. Returns the time at which advance() must be called even
  /// without events.
  net::Deadline watch(net::PollSet& set, net::Deadline deadline);

  /// Handles the events of the poll set. Fails with system if it could not accept for too long, or
  /// with the error of a listener that has closed.
  Status advance(const net::PollSet& set);

 private:
  struct ListenerState {
    std::unique_ptr<Listener> listener;
    std::optional<std::size_t> poll_index;  ///< In the poll set; none while the listener pauses.
    Time paused_until = {};
    std::optional<Time> shortage_since;
  };

  struct Pending {
    std::unique_ptr<ServerHandshake> handshake;
    net::Deadline deadline;
    net::SocketAddress from;
    std::size_t poll_index = 0;
  };

  Status accept_all(ListenerState& state);
  Status pause(ListenerState& state, const Error& error);
  void make_room();
  void begin(net::Accepted accepted);
  bool advance_handshake(Pending& pending);

  const Clock& clock_;
  std::vector<ListenerState> listeners_;
  Options options_;
  ServerHandshake::Admit admit_;
  std::function<void(AuthenticatedConnection)> on_connection_;
  std::list<Pending> pending_;  ///< Oldest first.
  RefusalLog refusals_;
};

}  // namespace gradwire::bootstrap
