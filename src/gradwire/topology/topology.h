#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::topology {

/// A connection: between a network interface and its switch, or between two ranks.
struct Link {
  Duration latency = std::chrono::microseconds(30);  ///< One way, for a small message.
  double bytes_per_second = 1.25e8;                  ///< Per direction (full duplex).

  bool operator==(const Link&) const = default;
};

/// A machine of the job. Its ranks share its network interfaces, and exchange data with each other
/// through shared memory.
struct Host {
  std::string name;                 ///< For messages; may be empty.
  std::vector<Link> rails{Link{}};  ///< Network interfaces in use, by rail. At least one.
  /// Between two of its ranks. Each rank can send, and receive, at this rate.
  Link inside{.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
  int cores = 0;  ///< Processors that its ranks share; 0: one per rank.
  /// Hosts with the same number (containers, namespaces) share these processors; -1: not shared.
  int kernel = -1;

  /// All rails as one link: messages are striped over them, so the rates add up. The latency is
  /// that of the first rail, which carries small messages.
  Link port() const;

  bool operator==(const Host&) const = default;
};

/// The machines of a job as algorithms see them: its hosts, their ports, and the host of each rank.
/// A value type. Ranks that must make the same schedules need equal topologies.
class Topology {
 public:
  /// `ranks` ranks on one switch, each on its own host, all with the same port. ranks >= 1.
  static Topology uniform(int ranks, Link link = {});

  /// One rank per port, each on its own host.
  explicit Topology(std::vector<Link> ports);

  /// Rank r is on host number host_of[r]. Every host has at least one rank and at least one rail.
  Topology(std::vector<Host> hosts, std::vector<int> host_of);

  /// Sets the measured link from one host to another, in that direction, over all rails together.
  /// It replaces the link derived from the two hosts' ports. The ports remain: traffic to all other
  /// hosts together is no faster than the port.
  void set_measured(int from_host, int to_host, Link link);

  /// Returns the topology of these ranks alone, numbered in this order. Hosts without any of them
  /// are left out.
  Topology restricted_to(std::span<const Rank> ranks) const;

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(hosts_.size()); }

  const Host& host(int number) const { return hosts_[static_cast<std::size_t>(number)]; }
  int host_of(Rank rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  /// Ranks on a host, in ascending order.
  std::span<const Rank> ranks_on(int host) const {
    return ranks_on_[static_cast<std::size_t>(host)];
  }
  bool same_host(Rank a, Rank b) const { return host_of(a) == host_of(b); }

  /// Port of a rank's host, shared with the host's other ranks.
  Link port(Rank rank) const { return host(host_of(rank)).port(); }

  /// Measured link between two hosts; nullopt if not measured.
  std::optional<Link> measured(int from_host, int to_host) const {
    return measured_[pair(from_host, to_host)];
  }

  /// Path from one rank to another on an idle network: the link within the host; or the measured
  /// link; or else, over the rails that both hosts have, the sum of each rail's slower end, with
  /// the latency of the farther host.
  Link path(Rank from, Rank to) const;

  bool operator==(const Topology&) const = default;

 private:
  std::size_t pair(int from_host, int to_host) const {
    return static_cast<std::size_t>(from_host) * hosts_.size() + static_cast<std::size_t>(to_host);
  }

  std::vector<Host> hosts_;
  std::vector<int> host_of_;                   ///< By rank.
  std::vector<std::vector<Rank>> ranks_on_;    ///< By host.
  std::vector<std::optional<Link>> measured_;  ///< By ordered pair of hosts.
};

}  // namespace gradwire::topology
