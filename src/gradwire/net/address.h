#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "gradwire/base/error.h"

namespace gradwire {

/// Where a socket is: an IPv4 or IPv6 address and a port. A value; default-constructed it is none.
class SocketAddress {
 public:
  SocketAddress() = default;

  /// From what the operating system gives; anything but IPv4 and IPv6 becomes none.
  SocketAddress(const sockaddr* address, socklen_t size);

  /// A numeric host ("10.0.0.1", "::1", "fe80::1%eth0") and a port. Error: invalid_argument.
  static Result<SocketAddress> of(const std::string& numeric_host, std::uint16_t port);

  /// The inverse of to_string(): "10.0.0.1:29500" or "[::1]:29500". Error: invalid_argument.
  static Result<SocketAddress> parse(std::string_view text);

  bool valid() const { return size_ != 0; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  SocketAddress with_port(std::uint16_t port) const;

  /// The numeric host, without brackets.
  std::string host() const;
  std::string to_string() const;

  /// 127.0.0.0/8 or ::1.
  bool is_loopback() const;
  /// 0.0.0.0 or ::, which would listen everywhere.
  bool is_any() const;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

/// The addresses of a host name (or numeric address), as the system's resolver orders them, never
/// empty. May block for as long as the resolver does. Errors: invalid_argument if there is no such
/// name, timeout if the resolver could not say.
Result<std::vector<SocketAddress>> resolve(const std::string& name, std::uint16_t port);

/// The local address that packets to `destination` leave from, port 0. Sends nothing.
Result<SocketAddress> route_source(const SocketAddress& destination);

}  // namespace gradwire
