#pragma once

#include <vector>

#include "gradwire/topology/topology.h"

/// Spanning trees packed so that no port and no wire carries much more of them, for its rate, than
/// any other (Wang et al., "Blink: fast and generic collectives for distributed ML", MLSys 2020,
/// whose trees are packed over links of GPUs; the prices are those of multiplicative weights).
namespace gradwire {

/// parent[host]: the host above, -1 at the root. The hosts in `order` come after their parents.
struct HostTree {
  std::vector<int> parent;
  std::vector<int> order;
};

/// Trees over the hosts of a topology, of which each carries the same part of the data. An edge
/// takes, in both of its hosts' ports and on what was measured between them, one part each way. As
/// few trees as come close to the best that was found. Depends on nothing but the topology.
std::vector<HostTree> pack_trees(const Topology& topology);

/// Seconds that the busiest port or wire needs, if one byte goes up and down the trees.
double time_of_trees(const Topology& topology, const std::vector<HostTree>& trees);

}  // namespace gradwire
