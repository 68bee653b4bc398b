#include "gradwire/bootstrap/mesh/local_rails.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/launchers.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::bootstrap {
namespace {

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:");
}

/// Preference of an address; 0 is best.
int rank_of(const std::string& address, int wanted_family) {
  const int family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return (family == wanted_family ? 0 : 1) + (is_link_local(address) ? 2 : 0);
}

Result<RailEndpoint> rail_on(const topology::Interface& chosen, int wanted_family) {
  const auto best = std::ranges::min_element(chosen.addresses, {}, [&](const std::string& address) {
    return rank_of(address, wanted_family);
  });
  GRADWIRE_ASSIGN_OR_RETURN(auto address, net::SocketAddress::of(*best, 0));
  return RailEndpoint{address, chosen.name};
}

Result<std::vector<RailEndpoint>> rails_on(const std::vector<topology::Interface>& chosen,
                                           const std::string& wanted, int wanted_family) {
  if (chosen.size() > kMaxRails) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("\"{}\" selects {} network interfaces, and {} can be used at once: "
                    "{}",
                    wanted, chosen.size(), kMaxRails, topology::describe_interfaces(chosen)));
  }
  std::vector<RailEndpoint> rails;
  for (const topology::Interface& one : chosen) {
    GRADWIRE_ASSIGN_OR_RETURN(auto rail, rail_on(one, wanted_family));
    rails.push_back(std::move(rail));
  }
  return rails;
}

/// Returns the effective value of a kernel setting: the maximum of the interface's and that for all
/// interfaces.
int ipv4_setting(const std::string& interface, const char* name) {
  int most = 0;
  for (const std::string& of : {std::string("all"), interface}) {
    int value = 0;
    std::ifstream(fmt::format("/proc/sys/net/ipv4/conf/{}/{}", of, name)) >> value;
    most = std::max(most, value);
  }
  return most;
}

}  // namespace

Result<std::vector<RailEndpoint>> choose_local_rails(const std::string& wanted,
                                                     const net::SocketAddress& master) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto all, topology::list_interfaces());
  if (!wanted.empty()) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto chosen, topology::choose_interfaces(wanted, all));
    return rails_on(chosen, wanted, master.family());
  }
  GRADWIRE_ASSIGN_OR_RETURN(const auto source, net::route_source(master));
  return std::vector{RailEndpoint{source, topology::interface_with_address(source.host(), all)}};
}

std::string address_in_place_of_loopback(const std::string& master) {
  if (is_loopback(master)) return "";
  const auto resolved = net::resolve(master, 0);
  if (!resolved || !resolved->front().is_loopback()) return "";
  constexpr const char* kElsewhere = "192.0.2.1";  // No host has it (RFC 5737).
  const auto by_default = net::route_source(*net::SocketAddress::of(kElsewhere, 0));
  if (by_default && !by_default->is_loopback()) return by_default->host();
  const auto all = topology::list_interfaces();
  if (!all) return "";
  std::vector<topology::Interface> usable;
  std::ranges::copy_if(*all, std::back_inserter(usable), [](const topology::Interface& one) {
    return one.up && !one.loopback && !one.addresses.empty();
  });
  if (usable.size() != 1) return "";
  const auto rail = rail_on(usable.front(), AF_INET);
  return rail ? rail->address.host() : "";
}

Result<std::vector<RailEndpoint>> rails_at(const std::vector<std::string>& addresses) {
  if (addresses.size() > kMaxRails) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} addresses are given, and {} can be used at once: {}",
                               addresses.size(), kMaxRails, fmt::join(addresses, ", ")));
  }
  GRADWIRE_ASSIGN_OR_RETURN(const auto all, topology::list_interfaces());
  std::vector<RailEndpoint> rails;
  for (const std::string& text : addresses) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto address, net::SocketAddress::of(text, 0));
    rails.push_back({address, topology::interface_with_address(text, all)});
  }
  return rails;
}

bool leaves_elsewhere(const RailEndpoint& own, const net::SocketAddress& other) {
  if (own.interface.empty() || own.address.is_loopback()) return false;
  const auto source = net::route_source(other);
  return source && source->host() != own.address.host();
}

bool answers_for_itself_alone(const RailEndpoint& own) {
  // With IPv6, each interface answers for its own addresses only.
  if (own.address.family() == AF_INET6) return true;
  return ipv4_setting(own.interface, "arp_ignore") >= 1 &&
         ipv4_setting(own.interface, "arp_announce") >= 2;
}

}  // namespace gradwire::bootstrap
