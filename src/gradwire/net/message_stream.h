#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/net/session_key.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// Whole messages over a connection whose ends have shaken hands, without waiting. Each carries a
/// code that only the other end can have made, of what it says and of how many came before it: what
/// somebody on the way changes, repeats or leaves out ends the connection. Not encrypted. Not
/// thread-safe.
///
///     size 4, little-endian; message; code 16: of HMAC-SHA256(key, end 1 | number 8 | message)
class MessageStream {
 public:
  enum class End : std::uint8_t { client = 1, server = 2 };

  /// `key`: Handshake::session_key(). `end`: which this one is. A message that is said to have more
  /// than `most` bytes is refused before memory is taken for it.
  MessageStream(Socket socket, const SessionKey& key, End end, std::size_t most)
      : socket_(std::move(socket)), key_(key), end_(end), most_(most) {}

  const Socket& socket() const { return socket_; }

  /// Whether all that was handed to send() is with the kernel; else flush() has more to do once the
  /// socket is writable.
  bool flushed() const { return outbox_.empty(); }

  /// Sends what can be sent now. Error: disconnected.
  Status send(std::string_view message);
  Status flush();

  /// The next message; false if it is not all there yet. Errors: disconnected, corrupted.
  Result<bool> receive(std::string& message);

 private:
  std::string code_of(End end, std::uint64_t number, std::string_view message) const;
  Result<bool> fill(std::size_t size);

  Socket socket_;
  SessionKey key_;
  End end_;
  std::size_t most_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::string inbox_;
  std::string outbox_;
};

}  // namespace gradwire
