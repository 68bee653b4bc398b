#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "gradwire/topology/topology.h"

namespace gradwire::test {

struct NamedTopology {
  std::string name;
  topology::Topology topology;
};

inline void PrintTo(const NamedTopology& named, std::ostream* out) {
  *out << named.name;
}

/// Jobs of 1 to 7 ranks: on one machine, on hosts of several ranks, over unequal links, over two
/// rails. Hosts are numbered by their lowest rank.
std::vector<NamedTopology> all_topologies();

/// Hosts of several ranks with one or two rails, all unequal, and one of each.
NamedTopology mixed_topology();

}  // namespace gradwire::test
