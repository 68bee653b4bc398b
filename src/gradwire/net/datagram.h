#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// UDP datagrams that are never cut into fragments, neither here nor on the way: to find out what
/// size of packet a path carries, and whether it loses any. Not for traffic.

/// A datagram socket at this address; port 0: any free one. Errors: as listen_on().
Result<Socket> bind_datagrams(const SocketAddress& address);

/// Bytes of the headers before a datagram's payload: 28 with IPv4, 48 with IPv6.
std::size_t datagram_overhead(const SocketAddress& address);

enum class DatagramSent : std::uint8_t {
  sent,     ///< It has left, or was lost at once.
  too_big,  ///< For our own interface.
};

/// Sends one datagram. Errors: disconnected (no route, interface down), system.
Result<DatagramSent> send_datagram(const Socket& socket, const SocketAddress& to,
                                   ConstBytes payload);

struct Datagram {
  std::size_t size = 0;
  SocketAddress from;
};

/// The next datagram that has arrived, its payload in `buffer` (cut to that); nothing if there is
/// none now.
std::optional<Datagram> receive_datagram(const Socket& socket, Bytes buffer);

/// The MTU of an interface of this host, in bytes. Error: system (no such interface).
Result<int> interface_mtu(const std::string& name);

}  // namespace gradwire
