#pragma once

#include <map>

#include "gradwire/topology/topology.h"

namespace gradwire {

/// Hosts and what joins them, described by what they have in common and the few that differ, so
/// that tens of thousands of them take no memory. Rank r is on host r / ranks_per_host; hosts
/// follow each other rack by rack.
struct Fabric {
  int hosts = 1;
  int ranks_per_host = 1;
  /// Of a host, all its network interfaces together.
  Link port;
  /// From one rank of a host to another: of each rank.
  Link inside{.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
  /// Hosts whose ports run at another share of port.bytes_per_second: {3, 0.5} is half as fast.
  std::map<int, double> port_factor;
  /// So many hosts share a switch of their own; 0: one switch carries everything.
  int rack_hosts = 0;
  /// What a rack's hosts can send together, by what its link to the other racks carries each way.
  double oversubscription = 1;

  int ranks() const { return hosts * ranks_per_host; }
  int host_of(int rank) const { return rank / ranks_per_host; }
  int rack_of(int host) const { return rack_hosts > 0 ? host / rack_hosts : 0; }
  double port_rate(int host) const;
  /// Of a rack's link to the others, each way, in bytes per second.
  double uplink_rate() const;
  bool has_racks() const { return rack_hosts > 0 && rack_hosts < hosts; }
  int racks() const { return rack_of(hosts - 1) + 1; }
  /// Whether racks' links carry less than their hosts can send.
  bool limited_racks() const { return has_racks() && oversubscription > 1; }
  /// Whether all hosts are alike, and the switch carries what they can send.
  bool uniform() const;

  /// The same without what makes hosts differ.
  Fabric made_uniform() const;

  /// What algorithms and the link model go by. Takes hosts^2 memory: for hundreds of hosts. Racks
  /// are left out, as a Topology has none.
  Topology topology() const;

  /// The fabric of a topology whose hosts all have as many ranks, numbered host by host; what was
  /// measured between pairs of hosts is left out. Throws Exception(invalid_argument) otherwise.
  static Fabric of(const Topology& topology);
};

}  // namespace gradwire
