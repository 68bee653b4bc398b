#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// What joins two places: a network interface to its switch, one rank to another.
struct Link {
  Duration latency = std::chrono::microseconds(30);  ///< One way, for a small message.
  double bytes_per_second = 1.25e8;                  ///< Each direction by itself (full duplex).

  bool operator==(const Link&) const = default;
};

/// A machine of the job. Its ranks share its network interfaces; to each other they are joined by
/// something else, shared memory.
struct Host {
  std::string name;                 ///< For people; may be empty.
  std::vector<Link> rails{Link{}};  ///< Its network interfaces in use, by rail. At least one.
  /// From one of its ranks to another. Each rank can send, and receive, at this rate.
  Link inside{.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
  int cores = 0;  ///< Processors that its ranks share; 0: one for each of them.
  /// Hosts with the same number (containers, namespaces) share these processors; -1: its own.
  int kernel = -1;

  /// All rails as one: messages are striped over them, so the rates add up. The latency is the
  /// first rail's, which small messages take.
  Link port() const;

  bool operator==(const Host&) const = default;
};

/// The machines of a job as an algorithm sees them: which hosts there are, what their ports can do,
/// and which rank is on which. A value; ranks that are to make the same schedules must have equal
/// ones.
class Topology {
 public:
  /// `ranks` ranks on a switch, each on a host of its own, all with the same port. ranks >= 1.
  static Topology uniform(int ranks, Link link = {});

  /// One rank a port, each on a host of its own.
  explicit Topology(std::vector<Link> ports);

  /// Rank r is on host number host_of[r]. Every host has at least one rank and at least one rail.
  Topology(std::vector<Host> hosts, std::vector<int> host_of);

  /// The same with what was measured from one host to another, in that direction, all rails
  /// together: it takes the place of what the two hosts' ports suggest. The ports stay: what goes
  /// to all other hosts together is still no faster than the port.
  void set_measured(int from_host, int to_host, Link link);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(hosts_.size()); }

  const Host& host(int number) const { return hosts_[static_cast<std::size_t>(number)]; }
  int host_of(Rank rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  /// In ascending order.
  std::span<const Rank> ranks_on(int host) const {
    return ranks_on_[static_cast<std::size_t>(host)];
  }
  bool same_host(Rank a, Rank b) const { return host_of(a) == host_of(b); }

  /// The port of a rank's host, which it shares with the host's other ranks.
  Link port(Rank rank) const { return host(host_of(rank)).port(); }

  /// What was measured between two hosts; nothing where nothing was.
  std::optional<Link> measured(int from_host, int to_host) const {
    return measured_[pair(from_host, to_host)];
  }

  /// The path from one rank to another when nothing else is under way: inside the host; or as
  /// measured; or else, rail by rail, as fast as the slower end and as far as the farther one, over
  /// as many rails as both hosts have.
  Link path(Rank from, Rank to) const;

  bool operator==(const Topology&) const = default;

 private:
  std::size_t pair(int from_host, int to_host) const {
    return static_cast<std::size_t>(from_host) * hosts_.size() + static_cast<std::size_t>(to_host);
  }

  std::vector<Host> hosts_;
  std::vector<int> host_of_;                   ///< By rank.
  std::vector<std::vector<Rank>> ranks_on_;    ///< By host.
  std::vector<std::optional<Link>> measured_;  ///< By pair of hosts, from and to.
};

}  // namespace gradwire
