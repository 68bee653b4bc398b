#pragma once

#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// What one rank can send, or receive, over its network port.
struct Link {
  Duration latency = std::chrono::microseconds(30);  ///< One way, for a small message.
  double bytes_per_second = 1.25e8;                  ///< Each direction by itself (full duplex).
};

/// The machines of a job as an algorithm sees them: how many ranks, and what each one's port can
/// do. Two ranks are as fast as the slower port of the two, and as far as the larger latency.
class Topology {
 public:
  /// `ranks` ranks on a switch, all with the same port. ranks >= 1.
  static Topology uniform(int ranks, Link link = {});

  /// One rank a port.
  explicit Topology(std::vector<Link> ports);

  int ranks() const { return static_cast<int>(ports_.size()); }
  const Link& port(Rank rank) const { return ports_[static_cast<std::size_t>(rank)]; }

  /// The path from one rank to another.
  Link path(Rank from, Rank to) const;

 private:
  std::vector<Link> ports_;
};

}  // namespace gradwire
