#include "gradwire/net/datagram.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

namespace gradwire::net {
namespace {

/// Sets "don't fragment", and makes the kernel ignore the path MTU that it has learned, because
/// that is to be tested.
bool forbid_fragments(const Socket& socket, int family) {
  const bool ipv4 = family == AF_INET;
  const int probe = ipv4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
  return ::setsockopt(socket.descriptor(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                      ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe, sizeof probe) == 0;
}

}  // namespace

Result<Socket> bind_datagrams(const SocketAddress& address) {
  Socket socket(::socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() || !forbid_fragments(socket, address.family())) {
    return system_failure("cannot make a datagram socket");
  }
  if (::bind(socket.descriptor(), address.data(), address.size()) != 0) {
    return system_failure("cannot receive datagrams at " + address.to_string(), errno,
                          ErrorKind::invalid_argument);
  }
  return socket;
}

std::size_t datagram_overhead(const SocketAddress& address) {
  return address.family() == AF_INET ? 20 + 8 : 40 + 8;
}

Result<DatagramSent> send_datagram(const Socket& socket, const SocketAddress& to,
                                   ConstBytes payload) {
  for (;;) {
    if (::sendto(socket.descriptor(), payload.data(), payload.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 to.data(), to.size()) >= 0) {
      return DatagramSent::sent;
    }
    switch (errno) {
      case EINTR:
        continue;
      case EMSGSIZE:
        return DatagramSent::too_big;
      case EAGAIN:
      case ENOBUFS:       // The local queue is full: lost, as in any other queue.
      case ECONNREFUSED:  // Reports an earlier datagram.
        return DatagramSent::sent;
      case EINVAL:  // Returned for a route that discards packets (blackhole).
      case EHOSTUNREACH:
      case ENETUNREACH:
      case ENETDOWN:
      case EPERM:
      case EACCES:
        return system_failure("cannot send a datagram to " + to.to_string(), errno,
                              ErrorKind::disconnected);
      default:
        return system_failure("cannot send a datagram to " + to.to_string());
    }
  }
}

std::optional<Datagram> receive_datagram(const Socket& socket, Bytes buffer) {
  for (;;) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof storage;
    auto* at = reinterpret_cast<sockaddr*>(&storage);
    const ssize_t count =
        ::recvfrom(socket.descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT, at, &size);
    if (count >= 0) return Datagram{static_cast<std::size_t>(count), SocketAddress(at, size)};
    if (errno != EINTR && errno != ECONNREFUSED) return std::nullopt;
  }
}

Result<int> interface_mtu(const std::string& name) {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  name.copy(request.ifr_name, std::min(name.size(), sizeof request.ifr_name - 1));
  if (!socket.valid() || ::ioctl(socket.descriptor(), SIOCGIFMTU, &request) != 0) {
    return system_failure(fmt::format("cannot find the MTU of interface \"{}\"", name));
  }
  return request.ifr_mtu;
}

}  // namespace gradwire::net
