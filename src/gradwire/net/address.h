#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "gradwire/base/error.h"

namespace gradwire::net {

/// An IPv4 or IPv6 address with a port. Value type; a default-constructed one is not valid.
class SocketAddress {
 public:
  SocketAddress() = default;

  /// From a sockaddr; other families than IPv4 and IPv6 give an invalid address.
  SocketAddress(const sockaddr* address, socklen_t size);

  /// From a numeric host ("10.0.0.1", "::1", "fe80::1%eth0") and a port. Fails with
  /// invalid_argument.
  static Result<SocketAddress> of(const std::string& numeric_host, std::uint16_t port);

  /// The inverse of to_string(): "10.0.0.1:29500" or "[::1]:29500". Fails with invalid_argument.
  static Result<SocketAddress> parse(std::string_view text);

  bool valid() const { return size_ != 0; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  SocketAddress with_port(std::uint16_t port) const;

  /// Returns the numeric host, without brackets.
  std::string host() const;
  std::string to_string() const;

  /// Returns true for 127.0.0.0/8 and ::1.
  bool is_loopback() const;
  /// Returns true for 0.0.0.0 and ::, which would listen on all interfaces.
  bool is_any() const;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

/// Returns the addresses of a host name (or numeric address) in the order of the system's resolver;
/// never empty. Blocks as long as the resolver does. Fails with invalid_argument if the name does
/// not exist, timeout if the resolver gave no answer.
Result<std::vector<SocketAddress>> resolve(const std::string& name, std::uint16_t port);

/// Returns this host's name (gethostname(2)); "unknown" if there is none.
std::string host_name();

/// Returns the local source address of packets to `destination`, with port 0. Sends nothing.
Result<SocketAddress> route_source(const SocketAddress& destination);

}  // namespace gradwire::net
