#pragma once

#include <vector>

#include "gradwire/topology/topology.h"

/// Spanning trees, packed so that their load, relative to rates, is balanced over ports and wires
/// (Wang et al., "Blink: fast and generic collectives for distributed ML", MLSys 2020, which packs
/// trees over GPU links; prices are those of the multiplicative weights method).
namespace gradwire::schedule {

/// parent[host]: the host's parent, -1 at the root. `order` lists every host after its parent.
struct HostTree {
  std::vector<int> parent;
  std::vector<int> order;
};

/// Packs trees over the hosts of a topology; each carries an equal part of the data. An edge loads
/// the ports of both its hosts, and the measured links between them, with one part in each
/// direction. Returns the fewest trees whose time is close to the best found. Depends on the
/// topology only.
std::vector<HostTree> pack_trees(const topology::Topology& topology);

/// Seconds that the busiest port or wire needs to reduce and broadcast one byte over the trees.
double time_of_trees(const topology::Topology& topology, const std::vector<HostTree>& trees);

}  // namespace gradwire::schedule
