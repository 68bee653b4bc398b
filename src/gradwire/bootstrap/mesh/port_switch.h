#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/net/local_socket.h"

namespace gradwire::bootstrap {

/// First message from a process that shares a port to the switch.
struct PortMember {
  Destination destination;                    ///< Destination of connections for the process.
  std::vector<net::SocketAddress> addresses;  ///< Addresses on which to listen for them.
};

std::string encode(const PortMember& member);
std::optional<PortMember> decode_port_member(std::string_view message);

/// Listens on the port that all processes of a job on this host share, on its own thread. It peeks
/// at the first message of each connection, without consuming it, and passes the connection to the
/// destination process. It authenticates no peer and makes no decisions; the destination process
/// performs the handshake (bootstrap/handshake/handshake.h). Its memory is bounded like a
/// HandshakeServer's.
///
/// The process that holds the local name `name` is the switch. The others connect to that name,
/// send a PortMember and get a response, "+" or "-" followed by the error, and then connections.
class PortSwitch {
 public:
  /// Returns null if another process is the switch. Fails with system.
  static Result<std::unique_ptr<PortSwitch>> start(const net::HostNetwork& network,
                                                   const std::string& name);

  /// Stops. The other processes notice, and one of them becomes the switch.
  ~PortSwitch() = default;
  PortSwitch(const PortSwitch&) = delete;
  PortSwitch& operator=(const PortSwitch&) = delete;

 private:
  class Loop;

  explicit PortSwitch(std::unique_ptr<net::LoopThread> thread) : thread_(std::move(thread)) {}

  std::unique_ptr<net::LoopThread> thread_;
};

}  // namespace gradwire::bootstrap
