#pragma once

#include <memory>
#include <optional>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/store/message_stream.h"
#include "gradwire/bootstrap/store/store_protocol.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"

namespace gradwire::bootstrap {

/// A server on rank 0 responds immediately; a longer delay means trouble on its host or the link.
inline constexpr Duration kRankZeroPatience = std::chrono::seconds(10);

/// A client's connection to a store server. After an error, requests and responses no longer match:
/// all further requests fail with the same error. Not thread-safe.
class StoreSession {
 public:
  StoreSession(const Clock& clock, AuthenticatedSocket connection, net::SocketAddress server);

  /// Sends a request and waits for its response: the request's `wait_ms`, and kRankZeroPatience.
  /// Fails with disconnected or corrupted.
  Result<StoreResponse> ask(const StoreRequest& request);

  /// Waits for a response without a request. Fails with disconnected or corrupted.
  Result<StoreResponse> await_response(net::Deadline deadline);

  /// Readable when the server has sent something or closed the connection.
  const net::Socket& socket() const { return stream_->socket(); }

  /// Address of the server.
  const net::SocketAddress& server() const { return server_; }

 private:
  tl::unexpected<Error> lost(const Error& error);

  const Clock* clock_;
  std::unique_ptr<MessageStream> stream_;  ///< Sessions are moved.
  net::SocketAddress server_;
  std::optional<Error> lost_;
};

}  // namespace gradwire::bootstrap
