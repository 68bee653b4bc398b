#include "gradwire/net/address.h"

#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct Lookup {
  AddressList list;
  int code;
};

Lookup look_up(const std::string& name, std::uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {AddressList(code == 0 ? found : nullptr, &freeaddrinfo), code};
}

std::string words_of_lookup(int code) {
  return code == EAI_SYSTEM ? errno_text(errno) : gai_strerror(code);
}

const sockaddr_in& as_ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}

const sockaddr_in6& as_ipv6(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size) {
  if (size < sizeof(sockaddr_in)) return;
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return;
  GRADWIRE_CHECK(size <= sizeof storage_);
  std::memcpy(&storage_, address, size);
  size_ = size;
}

Result<SocketAddress> SocketAddress::of(const std::string& numeric_host, std::uint16_t port) {
  const Lookup lookup = look_up(numeric_host, port, AI_NUMERICHOST);
  // The resolver ignores everything after a zero byte.
  if (lookup.list == nullptr || numeric_host.find('\0') != std::string::npos) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("\"{}\" is not a numeric IPv4 or IPv6 address", numeric_host));
  }
  return SocketAddress(lookup.list->ai_addr, lookup.list->ai_addrlen);
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const auto bad = [&] {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("\"{}\" is not an address like 10.0.0.1:29500 or [::1]:29500", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) return bad();
  std::uint16_t port = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || end != digits.data() + digits.size()) return bad();
  return of(std::string(host), port);
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(as_ipv4(data()).sin_port);
  if (family() == AF_INET6) return ntohs(as_ipv6(data()).sin6_port);
  return 0;
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress copy = *this;
  auto* at = reinterpret_cast<sockaddr*>(&copy.storage_);
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(at)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(at)->sin6_port = htons(port);
  return copy;
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "?";
  if (valid()) getnameinfo(data(), size_, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string SocketAddress::to_string() const {
  if (family() == AF_INET6) return fmt::format("[{}]:{}", host(), port());
  return fmt::format("{}:{}", host(), port());
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return (ntohl(as_ipv4(data()).sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_ipv6(data()).sin6_addr);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return as_ipv4(data()).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&as_ipv6(data()).sin6_addr);
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return family() == other.family() && port() == other.port() && host() == other.host();
}

Result<std::vector<SocketAddress>> resolve(const std::string& name, std::uint16_t port) {
  const Lookup lookup = look_up(name, port, 0);
  if (lookup.list == nullptr) {
    const bool later = lookup.code == EAI_AGAIN || lookup.code == EAI_SYSTEM;
    return failure(later ? ErrorKind::timeout : ErrorKind::invalid_argument,
                   fmt::format("cannot find the address of host \"{}\": {}", name,
                               words_of_lookup(lookup.code)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = lookup.list.get(); one != nullptr; one = one->ai_next) {
    const SocketAddress address(one->ai_addr, one->ai_addrlen);
    if (address.valid()) addresses.push_back(address);
  }
  return addresses;
}

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Result<SocketAddress> route_source(const SocketAddress& destination) {
  // Connecting a datagram socket only looks up the route. Any port but 0 works.
  const SocketAddress to = destination.port() == 0 ? destination.with_port(9) : destination;
  const Socket socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.descriptor(), to.data(), to.size()) != 0) {
    return system_failure(fmt::format("no route to {}", destination.host()));
  }
  return local_address(socket).with_port(0);
}

}  // namespace gradwire::net
