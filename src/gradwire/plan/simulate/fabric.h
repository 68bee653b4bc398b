#pragma once

#include <map>

#include "gradwire/topology/topology.h"

namespace gradwire::plan {

/// Hosts and their links, described by common properties and exceptions, so that tens of thousands
/// of hosts take no memory. Rank r is on host r / ranks_per_host; hosts are numbered rack by rack.
struct Fabric {
  int hosts = 1;
  int ranks_per_host = 1;
  /// All network interfaces of a host together.
  topology::Link port;
  /// Between ranks of a host, per rank.
  topology::Link inside{.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
  /// Hosts whose ports have another share of port.bytes_per_second: {3, 0.5} is half as fast.
  std::map<int, double> port_factor;
  /// Hosts per rack switch; 0: one switch carries everything.
  int rack_hosts = 0;
  /// Rate of a rack's hosts together divided by its uplink's rate, each direction.
  double oversubscription = 1;

  int ranks() const { return hosts * ranks_per_host; }
  int host_of(int rank) const { return rank / ranks_per_host; }
  int rack_of(int host) const { return rack_hosts > 0 ? host / rack_hosts : 0; }
  double port_rate(int host) const;
  /// Rate of a rack's uplink, each direction, in bytes per second.
  double uplink_rate() const;
  bool has_racks() const { return rack_hosts > 0 && rack_hosts < hosts; }
  int racks() const { return rack_of(hosts - 1) + 1; }
  /// Returns true if uplinks carry less than the racks' hosts can send.
  bool limited_racks() const { return has_racks() && oversubscription > 1; }
  bool equal_ports() const;

  /// Returns a smaller fabric of the same kind with `rack` hosts a rack. Its slowest port is at the
  /// same host, or at the same share of all hosts.
  Fabric with_hosts(int fewer, int rack) const;

  /// Returns the topology for algorithms and the link model. Takes hosts^2 memory: for hundreds of
  /// hosts. Omits racks, which a Topology does not have.
  topology::Topology topology() const;
};

}  // namespace gradwire::plan
