#include "gradwire/plan/simulate/fabric.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace gradwire::plan {

double Fabric::port_rate(int host) const {
  const auto other = port_factor.find(host);
  return port.bytes_per_second * (other == port_factor.end() ? 1 : other->second);
}

double Fabric::uplink_rate() const {
  return rack_hosts * port.bytes_per_second / oversubscription;
}

bool Fabric::equal_ports() const {
  return std::ranges::all_of(port_factor, [](const auto& entry) { return entry.second == 1; });
}

Fabric Fabric::with_hosts(int fewer, int rack) const {
  Fabric smaller = *this;
  smaller.hosts = fewer;
  smaller.rack_hosts = rack;
  smaller.port_factor.clear();
  if (equal_ports()) return smaller;
  const auto [host, factor] =
      *std::ranges::min_element(port_factor, {}, [](const auto& entry) { return entry.second; });
  const auto scaled = static_cast<int>(std::int64_t{host} * fewer / hosts);
  smaller.port_factor[host < fewer ? host : scaled] = factor;
  return smaller;
}

topology::Topology Fabric::topology() const {
  std::vector<topology::Host> all;
  for (int host = 0; host < hosts; ++host) {
    topology::Link own = port;
    own.bytes_per_second = port_rate(host);
    all.push_back({.name = "", .rails = {own}, .inside = inside});
  }
  std::vector<int> host_of_rank;
  for (int rank = 0; rank < ranks(); ++rank) host_of_rank.push_back(host_of(rank));
  return {std::move(all), std::move(host_of_rank)};
}

}  // namespace gradwire::plan
