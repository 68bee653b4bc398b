#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// A network interface of a host, as `gradwire probe` found it.
struct MeasuredRail {
  std::string interface;        ///< "gw0"
  int mtu = 1500;               ///< Of the interface, in bytes.
  double bytes_per_second = 0;  ///< The best that any pair got out of it, or into it if less.
  Duration latency = {};        ///< One way, to the nearest other host.

  bool operator==(const MeasuredRail&) const = default;
};

/// A host, as it was found.
struct MeasuredHost {
  std::string name;
  int ranks = 1;  ///< How many ran there then.
  int cores = 0;  ///< Processors that they could use; 0: not known.
  /// Hosts with the same number share their processors (containers, namespaces); -1: its own.
  int kernel = -1;
  std::vector<MeasuredRail> rails;
  std::optional<Link> inside;  ///< Between two of its ranks, if there were two.
  /// What every host gets into its rails when each sends to the next one at the same time.
  double together_bytes_per_second = 0;
  Duration clock_offset = {};       ///< Its time of day less that of the first host.
  Duration clock_uncertainty = {};  ///< The offset is right to within this.

  bool operator==(const MeasuredHost&) const = default;
};

/// One direction between two hosts over one rail, as it was found.
struct MeasuredPath {
  int from = 0;  ///< Numbers of hosts.
  int to = 0;
  int rail = 0;
  Duration latency = {};           ///< One way, the median; half of a round trip.
  Duration shortest_latency = {};  ///< The shortest.
  double bytes_per_second = 0;
  /// The largest packet that arrives, in bytes with its IP header; 0: not known, as datagrams do
  /// not get through at all. Smaller than the MTU of both ends: a black hole.
  int largest_packet = 0;
  double loss = 0;  ///< Of datagrams there and back, the part that did not return.

  bool operator==(const MeasuredPath&) const = default;
};

/// The algorithm that was the fastest when `gradwire tune` tried them, and the segments.
struct MeasuredChoice {
  std::string collective;  ///< "all_reduce"
  int ranks = 1;           ///< All the job's.
  std::size_t bytes = 0;   ///< Of all parts together.
  std::string algorithm;   ///< "star"
  Duration time = {};      ///< The median.
  int segments = 0;        ///< Of each message, about; 0: as many as usual.

  bool operator==(const MeasuredChoice&) const = default;
};

/// More than anybody would cut a message into.
inline constexpr int kMostSegments = 1024;

/// What `gradwire probe` finds out about hosts and what joins them.
struct Cluster {
  std::vector<MeasuredHost> hosts;
  std::vector<MeasuredPath> paths;      ///< Of each ordered pair of hosts, and rail.
  std::vector<MeasuredChoice> choices;  ///< Of `gradwire tune`; may be empty.

  /// The path with these ends, or null.
  const MeasuredPath* path(int from, int to, int rail) const;

  bool operator==(const Cluster&) const = default;
};

/// The largest packet of IP, in bytes: an MTU may be larger (that of the loopback interface is).
inline constexpr int kLargestPacket = 65535;

/// Whether packets that both ends' interfaces may send get lost on the way, though smaller ones
/// arrive. TCP then stops after the first few kilobytes.
bool is_black_hole(const Cluster& cluster, const MeasuredPath& path);

/// Sets each rail's bytes_per_second and latency to what the paths at that host show.
void set_rails_from_paths(Cluster& cluster);

/// The cluster as algorithms see it, each host with as many ranks as it had. Measurements within 5
/// % of each other count as equal, since they are never the same twice and algorithms for equal
/// links are better where links are equal: rates of rails become the median of those near them. A
/// pair of hosts gets a measured link of its own only where it differs by more than a tenth
/// (latency: by half) from what its ends' rails suggest. `cluster` has a host, and every host a
/// rail.
Topology topology_of(const Cluster& cluster);

/// The same for a job whose rank r runs on the host called host_names[r]; hosts without ranks are
/// left out. Error: invalid_argument, for a host that was not measured; it lists those that were.
Result<Topology> topology_for(const Cluster& cluster, const std::vector<std::string>& host_names);

/// What all ranks of a job go by.
struct JobTopology {
  Topology topology;
  std::vector<MeasuredChoice> choices;  ///< Of this job's number of ranks.
};

/// The cluster's, with what was measured with as many ranks.
JobTopology job_of(const Cluster& cluster, Topology topology);

}  // namespace gradwire
