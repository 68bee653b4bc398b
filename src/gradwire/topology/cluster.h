#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/topology/topology.h"

namespace gradwire::topology {

/// A network interface of a host, as measured by `gradwire probe`.
struct MeasuredRail {
  std::string interface;        ///< "gw0"
  int mtu = 1500;               ///< MTU of the interface, in bytes.
  double bytes_per_second = 0;  ///< Maximum over all pairs, out of it or into it, whichever is
                                ///< less.
  Duration latency = {};        ///< One way, to the nearest other host.

  bool operator==(const MeasuredRail&) const = default;
};

/// A host, as measured.
struct MeasuredHost {
  std::string name;
  int ranks = 1;  ///< Ranks on it during the measurement.
  int cores = 0;  ///< Processors available to them; 0: unknown.
  /// Hosts with the same number share their processors (containers, namespaces); -1: not shared.
  int kernel = -1;
  std::vector<MeasuredRail> rails;
  std::optional<Link> inside;  ///< Between two of its ranks, if it had two.
  /// Receive rate of its rails while each host sends to the next one at the same time.
  double together_bytes_per_second = 0;
  Duration clock_offset = {};       ///< Its wall clock minus that of the first host.
  Duration clock_uncertainty = {};  ///< Maximum error of the offset.

  bool operator==(const MeasuredHost&) const = default;
};

/// One direction between two hosts over one rail, as measured.
struct MeasuredPath {
  int from = 0;  ///< Numbers of hosts.
  int to = 0;
  int rail = 0;
  Duration latency = {};           ///< One way: half of the median round trip.
  Duration shortest_latency = {};  ///< One way: half of the shortest round trip.
  double bytes_per_second = 0;
  /// Largest packet that arrives, in bytes including the IP header; 0: unknown, as no datagram
  /// arrives. Smaller than the MTU of both ends: an MTU black hole.
  int largest_packet = 0;
  double loss = 0;  ///< Fraction of datagrams without an echo.

  bool operator==(const MeasuredPath&) const = default;
};

/// Fastest algorithm and segmentation that `gradwire tune` measured.
struct MeasuredChoice {
  std::string collective;  ///< "all_reduce"
  int ranks = 1;           ///< Ranks of the job.
  std::size_t bytes = 0;   ///< All parts together.
  std::string algorithm;   ///< "star"
  Duration time = {};      ///< The median.
  int segments = 0;        ///< Per message, approximately; 0: the default.

  bool operator==(const MeasuredChoice&) const = default;
};

/// Upper limit of MeasuredChoice::segments.
inline constexpr int kMaxSegments = 1024;

/// Hosts and the paths between them, as measured by `gradwire probe`.
struct Cluster {
  std::vector<MeasuredHost> hosts;
  std::vector<MeasuredPath> paths;      ///< Per ordered pair of hosts and rail.
  std::vector<MeasuredChoice> choices;  ///< From `gradwire tune`; may be empty.

  /// Returns the path with these ends over this rail, or null.
  const MeasuredPath* path(int from, int to, int rail) const;

  bool operator==(const Cluster&) const = default;
};

/// Maximum size of an IP packet in bytes. An MTU may be larger, such as that of the loopback
/// interface.
inline constexpr int kMaxPacketBytes = 65535;

/// Returns true if packets within both ends' MTU are lost on the path while smaller ones arrive
/// (MTU black hole). TCP then stalls after the first few kilobytes.
bool is_black_hole(const Cluster& cluster, const MeasuredPath& path);

/// Sets each rail's bytes_per_second and latency from the measured paths of its host.
void set_rails_from_paths(Cluster& cluster);

/// Returns the cluster as a topology, with the measured number of ranks per host. Rates of rails
/// within 5 % of each other become their median: measurements vary, and algorithms for equal links
/// are better where links are equal. A pair of hosts gets its own measured link only if it differs
/// from its ends' rails by more than a tenth (latency: by half). `cluster` must have a host, and
/// every host a rail.
Topology topology_of(const Cluster& cluster);

/// Returns the topology of a job whose rank r runs on host host_names[r]; hosts without ranks are
/// left out. Fails with invalid_argument for a host that was not measured; the message lists the
/// measured ones.
Result<Topology> topology_for(const Cluster& cluster, const std::vector<std::string>& host_names);

/// Topology and tuned choices that all ranks of a job share.
struct JobTopology {
  Topology topology;
  std::vector<MeasuredChoice> choices;  ///< For this job's number of ranks.
};

/// Returns `topology` with the cluster's choices for its number of ranks.
JobTopology job_of(const Cluster& cluster, Topology topology);

}  // namespace gradwire::topology
