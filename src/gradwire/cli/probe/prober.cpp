#include "gradwire/cli/probe/prober.h"

#include <fstream>

#include "gradwire/base/cores.h"
#include "gradwire/cli/probe/roster.h"

namespace gradwire {
namespace {

/// Identifies the running kernel: the same in all its containers, until reboot.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// Returns the id of the machine; the host name if it has none.
std::string machine_of(const RankEndpoint& endpoint) {
  return endpoint.machine.empty() ? endpoint.host : endpoint.machine;
}

/// Returns true if the rank is its machine's leader.
bool leads(Rank rank, const std::vector<RankEndpoint>& endpoints) {
  std::vector<std::string> names;
  for (const RankEndpoint& endpoint : endpoints) names.push_back(machine_of(endpoint));
  const Machines machines(names);
  return machines.leader(machines.number_of(rank)) == rank;
}

}  // namespace

Prober prober_of(const Job& job, const Mesh& mesh) {
  const RankEndpoint& endpoint = mesh.endpoints[static_cast<std::size_t>(job.rank)];
  return {.rank = job.rank,
          .ranks = job.world_size,
          .host = endpoint.host,
          .machine = machine_of(endpoint),
          .kernel = boot_id(),
          .cores = usable_cores(),
          .rails = endpoint.rails,
          .port = leads(job.rank, mesh.endpoints) ? job.port : std::uint16_t{0}};
}

}  // namespace gradwire
