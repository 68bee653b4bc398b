#include "gradwire/plan/simulate/processor_wait.h"

#include <algorithm>
#include <map>

namespace gradwire {
namespace {

constexpr double kSecondsAByte = 0.4e-9;

/// Hosts with a kernel in common.
struct Machine {
  double bytes = 0;  ///< That they send or receive.
  int hosts = 0;
  int cores = 0;
};

std::map<int, Machine> machines(const ProgramSet& programs, const Topology& topology,
                                const ChunkLayout& layout) {
  std::map<int, Machine> all;
  for (int number = 0; number < topology.hosts(); ++number) {
    const Host& host = topology.host(number);
    if (host.kernel < 0 || host.cores == 0) continue;
    Machine& machine = all[host.kernel];
    ++machine.hosts;
    machine.cores = host.cores;
  }
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    const auto at = all.find(topology.host(topology.host_of(rank)).kernel);
    if (at == all.end()) continue;
    const Program& program = programs.program(rank);
    for (const Op& op : program.ops) {
      if (!(sends(op) || receives(op)) || topology.same_host(rank, op.peer)) continue;
      at->second.bytes += static_cast<double>(layout.size(extent(op), program));
    }
  }
  return all;
}

}  // namespace

double processor_wait(const ProgramSet& programs, const Topology& topology,
                      const ChunkLayout& layout, double seconds) {
  if (seconds <= 0) return 1;
  double busiest = 0;
  for (const auto& [kernel, machine] : machines(programs, topology, layout)) {
    if (machine.hosts < 2) continue;
    busiest = std::max(busiest, machine.bytes * kSecondsAByte / machine.cores / seconds);
  }
  const double busy = std::min(busiest, 1.0);
  return 1 + busy * busy * busy / 2;
}

}  // namespace gradwire
