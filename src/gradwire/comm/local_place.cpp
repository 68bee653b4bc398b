#include "gradwire/comm/local_place.h"

#include <algorithm>
#include <vector>

#include "gradwire/topology/interfaces.h"

namespace gradwire {
namespace {

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:");
}

/// 0 is best.
int rank_of(const std::string& address, int wanted_family) {
  const int family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return (family == wanted_family ? 0 : 1) + (is_link_local(address) ? 2 : 0);
}

Result<LocalPlace> place_on(const Interface& chosen, int wanted_family) {
  const auto best = std::ranges::min_element(chosen.addresses, {}, [&](const std::string& address) {
    return rank_of(address, wanted_family);
  });
  auto address = SocketAddress::of(*best, 0);
  if (!address) return tl::unexpected<Error>(address.error());
  return LocalPlace{*address, chosen.name};
}

}  // namespace

Result<LocalPlace> choose_local_place(const std::string& wanted, const SocketAddress& master) {
  const auto all = list_interfaces();
  if (!all) return tl::unexpected<Error>(all.error());
  if (!wanted.empty()) {
    const auto chosen = choose_interfaces(wanted, *all);
    if (!chosen) return tl::unexpected<Error>(chosen.error());
    return place_on(chosen->front(), master.family());
  }
  const auto source = route_source(master);
  if (!source) return tl::unexpected<Error>(source.error());
  return LocalPlace{*source, interface_with_address(source->host(), *all)};
}

}  // namespace gradwire
