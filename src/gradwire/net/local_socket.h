#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {

// Connections between processes of one machine (and one network namespace) that carry whole
// messages and file descriptors: SOCK_SEQPACKET sockets with abstract names, see unix(7). A name
// disappears with the process that listens on it. All sockets are non-blocking.

/// Maximum size of a message in bytes.
inline constexpr std::size_t kMaxLocalMessage = 4096;

/// Listens under a name. Returns nullopt if another process does. Fails with system.
Result<std::optional<Socket>> listen_locally(const std::string& name);

/// Returns the next pending connection, or nullopt if there is none. Fails with system.
Result<std::optional<Socket>> accept_locally(const Socket& listener);

/// Connects to the process that listens under a name. Returns nullopt if there is none. Fails with
/// refused if that process belongs to another user, or with system.
Result<std::optional<Socket>> connect_locally(const std::string& name);

/// Returns true if the process at the other end belongs to this user or to root.
bool is_trusted(const Socket& connection);

/// Sends a message and, if `passed` is valid, a copy of its descriptor. Returns false if that is
/// not possible without waiting, or if the other end is gone.
bool send_local(const Socket& connection, std::string_view message, const Socket& passed = {});

struct LocalMessage {
  std::string text;
  Socket passed;       ///< Not valid if the message had none.
  bool ended = false;  ///< The other end is gone; there is no message.
};

/// Returns the next message, or nullopt if there is none.
std::optional<LocalMessage> receive_local(const Socket& connection);

}  // namespace gradwire::net
