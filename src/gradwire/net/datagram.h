#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {

/// UDP datagrams that are never fragmented, neither here nor on the path, for measuring path MTU
/// and loss. Not for traffic.

/// Binds a datagram socket to this address; port 0: any free one. Fails like listen_on().
Result<Socket> bind_datagrams(const SocketAddress& address);

/// Returns the bytes of IP and UDP headers before a payload: 28 with IPv4, 48 with IPv6.
std::size_t datagram_overhead(const SocketAddress& address);

enum class DatagramSent : std::uint8_t {
  sent,     ///< Sent, or lost immediately.
  too_big,  ///< Larger than the MTU of the local interface.
};

/// Sends one datagram. Fails with disconnected (no route, interface down) or system.
Result<DatagramSent> send_datagram(const Socket& socket, const SocketAddress& to,
                                   ConstBytes payload);

struct Datagram {
  std::size_t size = 0;
  SocketAddress from;
};

/// Returns the next received datagram with its payload in `buffer` (truncated to it); nullopt if
/// there is none.
std::optional<Datagram> receive_datagram(const Socket& socket, Bytes buffer);

/// Returns the MTU of a local interface in bytes. Fails with system (unknown interface).
Result<int> interface_mtu(const std::string& name);

}  // namespace gradwire::net
