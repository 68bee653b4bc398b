#include "gradwire/plan/simulate/link_load.h"

#include <algorithm>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

/// Bytes in each direction, as a share of all chunks' bytes.
struct BothWays {
  double out = 0, in = 0;
  double most() const { return std::max(out, in); }
};

}  // namespace

double port_share(const Schedule& schedule, const Fabric& fabric) {
  double most = 0;
  for (const int host : {0, fabric.hosts / 2, fabric.hosts - 1}) {
    double sent = 0, received = 0;
    for (int local = 0; local < fabric.ranks_per_host; ++local) {
      for (const Op& op : schedule.program(host * fabric.ranks_per_host + local).ops) {
        if (!(sends(op) || receives(op)) || fabric.host_of(op.peer) == host) continue;
        (sends(op) ? sent : received) += static_cast<double>(extent(op).count);
      }
    }
    most = std::max({most, sent, received});
  }
  return most / schedule.chunks;
}

double slowest_port(const Fabric& fabric) {
  double slowest = 1;
  for (const auto& [host, factor] : fabric.port_factor) slowest = std::min(slowest, factor);
  return slowest;
}

double extra_load(const HostTraffic& traffic, const Fabric& fabric) {
  const int rack = fabric.rack_hosts, n = fabric.hosts;
  const double slowest = slowest_port(fabric);
  double equal = 0, port = 0, link = 0, in_turn = 0;
  for (int d = 1; d < n; ++d) {
    const double sent = traffic.shares[static_cast<std::size_t>(d)];
    const double own = sent / fabric.port.bytes_per_second;
    // Hosts of a rack whose partner is in another rack.
    const int crossing = traffic.rotation ? std::min({d, rack, n - d}) : (d >= rack ? rack : 0);
    const double crossed = fabric.has_racks() ? sent * crossing / fabric.uplink_rate() : 0;
    equal += own;
    port += own / slowest;
    link += crossed;
    in_turn += std::max(own / slowest, crossed);
  }
  return (traffic.rotation ? std::max(port, link) : in_turn) - equal;
}

double extra_load(const Schedule& schedule, const Fabric& fabric) {
  std::vector<BothWays> ports(static_cast<std::size_t>(fabric.hosts));
  std::vector<BothWays> links(static_cast<std::size_t>(fabric.racks()));
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    const int from = fabric.host_of(rank);
    for (const Op& op : schedule.program(rank).ops) {
      if (!sends(op) || fabric.host_of(op.peer) == from) continue;
      const int to = fabric.host_of(op.peer);
      const double share = static_cast<double>(extent(op).count) / schedule.chunks;
      ports[static_cast<std::size_t>(from)].out += share;
      ports[static_cast<std::size_t>(to)].in += share;
      if (fabric.rack_of(from) == fabric.rack_of(to)) continue;
      links[static_cast<std::size_t>(fabric.rack_of(from))].out += share;
      links[static_cast<std::size_t>(fabric.rack_of(to))].in += share;
    }
  }
  double equal = 0, longest = 0;
  for (int host = 0; host < fabric.hosts; ++host) {
    const double most = ports[static_cast<std::size_t>(host)].most();
    equal = std::max(equal, most / fabric.port.bytes_per_second);
    longest = std::max(longest, most / fabric.port_rate(host));
  }
  for (const BothWays& link : links) {
    if (fabric.limited_racks()) longest = std::max(longest, link.most() / fabric.uplink_rate());
  }
  return longest - equal;
}

}  // namespace gradwire
