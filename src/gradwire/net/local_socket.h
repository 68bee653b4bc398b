#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/net/socket.h"

namespace gradwire {

// Connections between processes of one machine (and one network namespace), which carry whole
// messages and descriptors: SOCK_SEQPACKET sockets with abstract names, see unix(7). Names vanish
// with the process that listens. All are non-blocking.

/// Up to this long.
inline constexpr std::size_t kMaxLocalMessage = 4096;

/// Listens under a name; nothing if another process does. Error: system.
Result<std::optional<Socket>> listen_locally(const std::string& name);

/// The next connection that waits, or nothing if there is none. Error: system.
Result<std::optional<Socket>> accept_locally(const Socket& listener);

/// Connects to who listens under a name; nothing if nobody does. Errors: refused, if that is a
/// process of another user; system.
Result<std::optional<Socket>> connect_locally(const std::string& name);

/// Whether the process at the other end belongs to this user, or to root.
bool is_trusted(const Socket& connection);

/// Sends a message and, if it is valid, a copy of a descriptor. False if that cannot be done at
/// once, or the other end has gone.
bool send_local(const Socket& connection, std::string_view message, const Socket& passed = {});

struct LocalMessage {
  std::string text;
  Socket passed;       ///< Not valid if none came along.
  bool ended = false;  ///< The other end has gone; there is no message.
};

/// The next message, or nothing if there is none.
std::optional<LocalMessage> receive_local(const Socket& connection);

}  // namespace gradwire
