#include "gradwire/plan/simulate/processor_wait.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "gradwire/schedule/cost/port_times.h"

namespace gradwire {
namespace {

constexpr double kSecondsAByte = 0.4e-9;

/// Hosts that share a kernel.
struct Machine {
  double bytes = 0;  ///< Sent or received by them.
  int hosts = 0;
  int cores = 0;
};

/// By kernel.
std::map<int, Machine> machines(const Topology& topology, const std::vector<PortBytes>& ports) {
  std::map<int, Machine> all;
  for (int number = 0; number < topology.hosts(); ++number) {
    const Host& host = topology.host(number);
    if (host.kernel < 0 || host.cores == 0) continue;
    const PortBytes& port = ports[static_cast<std::size_t>(number)];
    Machine& machine = all[host.kernel];
    machine.bytes += port.sent + port.received;
    machine.cores = host.cores;
    ++machine.hosts;
  }
  return all;
}

}  // namespace

double processor_wait(const ProgramSet& programs, const Topology& topology,
                      const ChunkLayout& layout, double seconds) {
  if (seconds <= 0) return 1;
  double busiest = 0;
  for (const auto& [kernel, machine] : machines(topology, port_bytes(programs, topology, layout))) {
    if (machine.hosts < 2) continue;
    busiest = std::max(busiest, machine.bytes * kSecondsAByte / machine.cores / seconds);
  }
  const double busy = std::min(busiest, 1.0);
  return 1 + busy * busy * busy / 2;
}

}  // namespace gradwire
