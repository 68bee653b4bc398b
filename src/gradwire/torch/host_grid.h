#pragma once

#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {

/// The ranks of hosts that have the same number of ranks each.
struct HostGrid {
  /// hosts[h][i]: the rank at place i of host h, in ascending order.
  std::vector<std::vector<Rank>> hosts;
  std::size_t host = 0;   ///< This rank's.
  std::size_t place = 0;  ///< This rank's.

  int places() const { return static_cast<int>(hosts.front().size()); }
  /// The ranks of this host, and those at this place of each host.
  const std::vector<Rank>& inside() const { return hosts[host]; }
  std::vector<Rank> between() const;
};

/// Finds out which ranks share a host: those with the same `machine`
/// (topology::machine_identity()). Collective. Throws Exception(unsupported) on all ranks if hosts
/// have different numbers of ranks.
HostGrid host_grid(Communicator& communicator, const std::string& machine);

}  // namespace gradwire
