#include "gradwire/plan/simulate/fabric.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {

double Fabric::port_rate(int host) const {
  const auto other = port_factor.find(host);
  return port.bytes_per_second * (other == port_factor.end() ? 1 : other->second);
}

double Fabric::uplink_rate() const {
  return rack_hosts * port.bytes_per_second / oversubscription;
}

bool Fabric::uniform() const {
  const bool equal_ports =
      std::ranges::all_of(port_factor, [](const auto& entry) { return entry.second == 1; });
  return equal_ports && !limited_racks();
}

Fabric Fabric::made_uniform() const {
  Fabric alike = *this;
  alike.port_factor.clear();
  alike.rack_hosts = 0;
  alike.oversubscription = 1;
  return alike;
}

Topology Fabric::topology() const {
  std::vector<Host> all;
  for (int host = 0; host < hosts; ++host) {
    Link own = port;
    own.bytes_per_second = port_rate(host);
    all.push_back({.name = "", .rails = {own}, .inside = inside});
  }
  std::vector<int> host_of_rank;
  for (int rank = 0; rank < ranks(); ++rank) host_of_rank.push_back(host_of(rank));
  return {std::move(all), std::move(host_of_rank)};
}

Fabric Fabric::of(const Topology& topology) {
  Fabric fabric;
  fabric.hosts = topology.hosts();
  fabric.ranks_per_host = topology.ranks() / topology.hosts();
  fabric.inside = topology.host(0).inside;
  fabric.port = topology.host(0).port();
  for (int host = 0; host < topology.hosts(); ++host) {
    const Link port = topology.host(host).port();
    fabric.port.latency = std::max(fabric.port.latency, port.latency);
    fabric.port.bytes_per_second = std::max(fabric.port.bytes_per_second, port.bytes_per_second);
  }
  for (int host = 0; host < topology.hosts(); ++host) {
    const double rate = topology.host(host).port().bytes_per_second;
    if (rate != fabric.port.bytes_per_second)
      fabric.port_factor[host] = rate / fabric.port.bytes_per_second;
  }
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    if (fabric.ranks_per_host * topology.hosts() == topology.ranks() &&
        topology.host_of(rank) == fabric.host_of(rank))
      continue;
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("rank {} is on host {}: the simulation at scale needs the same "
                                "number of ranks on every host, numbered host by host",
                                rank, topology.host_of(rank)));
  }
  return fabric;
}

}  // namespace gradwire
