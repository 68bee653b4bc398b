#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/net/payload_checksum.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// Exchanges whole messages over a connection after its handshake, without blocking. Each message
/// carries an authentication code over its content and its number. A message that is modified,
/// repeated or dropped on the path ends the connection. Not encrypted. Not thread-safe.
///
///     size 4, little-endian; message; code 16:
///     the first bytes of HMAC-SHA256(key, end 1 | number 8 | message)
class MessageStream {
 public:
  enum class End : std::uint8_t { client = 1, server = 2 };

  /// `key`: Handshake::session_key(). `end`: this end's role. A message with an announced size
  /// above `max_message_bytes` is refused before memory is allocated for it.
  MessageStream(net::Socket socket, const net::SessionKey& key, End end,
                std::size_t max_message_bytes)
      : socket_(std::move(socket)), key_(key), end_(end), max_message_bytes_(max_message_bytes) {}

  const net::Socket& socket() const { return socket_; }

  /// Returns true if the kernel has taken everything passed to send(). Otherwise call flush() when
  /// the socket is writable.
  bool flushed() const { return outbox_.empty(); }

  /// Sends as much as possible without waiting. Fails with disconnected.
  Status send(std::string_view message);
  Status flush();

  /// Receives the next message; returns false if it is incomplete. Fails with disconnected or
  /// corrupted.
  Result<bool> receive(std::string& message);

  /// Discards what has been received; no message can be received after that. Returns false if the
  /// connection has ended.
  bool discard();

 private:
  std::string code_of(End end, std::uint64_t number, std::string_view message) const;
  Result<bool> fill(std::size_t size);

  net::Socket socket_;
  net::SessionKey key_;
  End end_;
  std::size_t max_message_bytes_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::string inbox_;
  std::string outbox_;
};

}  // namespace gradwire::bootstrap
