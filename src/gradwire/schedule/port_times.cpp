#include "gradwire/schedule/port_times.h"

#include <algorithm>
#include <cstddef>

namespace gradwire {

std::vector<double> port_times(const ProgramSet& programs, const Topology& topology,
                               const ChunkLayout& layout) {
  std::vector<double> sent(static_cast<std::size_t>(topology.hosts()));
  std::vector<double> received(sent.size());
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    const Program& program = programs.program(rank);
    for (const Op& op : program.ops) {
      if (!(sends(op) || receives(op)) || topology.same_host(rank, op.peer)) continue;
      auto& side = sends(op) ? sent : received;
      side[static_cast<std::size_t>(topology.host_of(rank))] +=
          static_cast<double>(layout.size(extent(op), program));
    }
  }
  std::vector<double> times(sent.size());
  for (std::size_t host = 0; host < times.size(); ++host) {
    times[host] = std::max(sent[host], received[host]) /
                  topology.host(static_cast<int>(host)).port().bytes_per_second;
  }
  return times;
}

}  // namespace gradwire
