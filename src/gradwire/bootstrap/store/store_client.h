#pragma once

#include <optional>
#include <string>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/bootstrap/store/message_stream.h"
#include "gradwire/bootstrap/store/store_protocol.h"

namespace gradwire::bootstrap {

/// A connection of a client, as the server sees it. The client sends one request at a time, so the
/// buffers are bounded by the largest request or response.
struct StoreClient {
  explicit StoreClient(AuthenticatedConnection connection);

  /// Sends a response, which ends the client's wait. Unsent bytes stay in the stream.
  void respond(const StoreResponse& response);

  /// Returns true if the process or its host has ended, even if the server has not read that yet.
  bool has_ended() const { return gone || net::has_ended(stream.socket()); }

  /// Returns true if a request of this kind is pending.
  bool waits_for(StoreOperation operation) const {
    return pending && pending->operation == operation;
  }

  /// "rank 3 (host b, 10.77.0.4:41234)".
  std::string name() const;

  Claims claims;
  net::SocketAddress from;
  MessageStream stream;
  std::string host;                     ///< Name of its host, once it is known.
  std::optional<StoreRequest> pending;  ///< The request that is not answered yet.
  Time pending_until = Time::max();
  bool notified = false;  ///< Told that the start has failed; its further requests are ignored.
  bool gone = false;
  std::size_t poll_index = 0;  ///< Index in the current PollSet.
};

}  // namespace gradwire::bootstrap
