#include "gradwire/schedule/cost/port_times.h"

#include <algorithm>
#include <cstddef>

namespace gradwire {

std::vector<PortBytes> port_bytes(const ProgramSet& programs, const Topology& topology,
                                  const ChunkLayout& layout) {
  std::vector<PortBytes> ports(static_cast<std::size_t>(topology.hosts()));
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    PortBytes& port = ports[static_cast<std::size_t>(topology.host_of(rank))];
    const Program& program = programs.program(rank);
    for (const Op& op : program.ops) {
      if (!(sends(op) || receives(op)) || topology.same_host(rank, op.peer)) continue;
      (sends(op) ? port.sent : port.received) +=
          static_cast<double>(layout.size(extent(op), program));
    }
  }
  return ports;
}

std::vector<double> port_times(const ProgramSet& programs, const Topology& topology,
                               const ChunkLayout& layout) {
  std::vector<double> times;
  for (const PortBytes& port : port_bytes(programs, topology, layout)) {
    const Link link = topology.host(static_cast<int>(times.size())).port();
    times.push_back(std::max(port.sent, port.received) / link.bytes_per_second);
  }
  return times;
}

}  // namespace gradwire
