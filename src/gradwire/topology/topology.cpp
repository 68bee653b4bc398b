#include "gradwire/topology/topology.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/check.h"

namespace gradwire {

Topology Topology::uniform(int ranks, Link link) {
  return Topology(std::vector<Link>(static_cast<std::size_t>(ranks), link));
}

Topology::Topology(std::vector<Link> ports) : ports_(std::move(ports)) {
  GRADWIRE_CHECK(!ports_.empty());
}

Link Topology::path(Rank from, Rank to) const {
  const Link& a = port(from);
  const Link& b = port(to);
  return {std::max(a.latency, b.latency), std::min(a.bytes_per_second, b.bytes_per_second)};
}

}  // namespace gradwire
