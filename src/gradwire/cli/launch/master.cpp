#include "gradwire/cli/launch/master.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random_hex.h"
#include "gradwire/net/address.h"
#include "gradwire/net/socket.h"

namespace gradwire {
namespace {

bool only_loopback(const std::string& name) {
  const auto addresses = resolve(name, 0);
  return addresses && std::all_of(addresses->begin(), addresses->end(),
                                  [](const SocketAddress& a) { return a.is_loopback(); });
}

std::optional<std::uint16_t> free_port_here(const SocketAddress& address) {
  const Result<Socket> socket = listen_on(address);
  if (!socket) return std::nullopt;
  return local_address(*socket).port();
}

}  // namespace

std::string default_master_address(const HostEntry& first, bool all_here) {
  if (all_here && first.address.empty()) return "127.0.0.1";
  const std::string address = address_of(first);
  if (!all_here && is_this_host(first) && only_loopback(address)) {
    throw Exception(
        ErrorKind::invalid_argument,
        fmt::format("other hosts cannot reach rank 0 at \"{}\", which resolves to this host's "
                    "loopback interface: pass an address that they can reach with --master-addr",
                    address));
  }
  return address;
}

std::uint16_t free_master_port(const std::string& address) {
  for (const SocketAddress& candidate :
       resolve(address, 0).value_or(std::vector<SocketAddress>{})) {
    if (candidate.is_any()) {
      throw Exception(ErrorKind::invalid_argument,
                      fmt::format("--master-addr {}: expected the address at which the ranks can "
                                  "reach rank 0, not a wildcard",
                                  address));
    }
    if (const auto port = free_port_here(candidate)) return *port;
  }
  const unsigned long draw = std::stoul(random_hex(4), nullptr, 16);
  return static_cast<std::uint16_t>(20000 + draw % 10000);
}

}  // namespace gradwire
