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
std::string machine_of(const RankPlace& place) {
  return place.machine.empty() ? place.host : place.machine;
}

/// Returns true if the rank is its machine's leader.
bool leads(Rank rank, const std::vector<RankPlace>& places) {
  std::vector<std::string> names;
  for (const RankPlace& place : places) names.push_back(machine_of(place));
  const Machines machines(names);
  return machines.leader(machines.number_of(rank)) == rank;
}

}  // namespace

Prober prober_of(const Job& job, const Mesh& mesh) {
  const RankPlace& place = mesh.places[static_cast<std::size_t>(job.rank)];
  return {.rank = job.rank,
          .ranks = job.world_size,
          .host = place.host,
          .machine = machine_of(place),
          .kernel = boot_id(),
          .cores = usable_cores(),
          .rails = place.rails,
          .port = leads(job.rank, mesh.places) ? job.port : std::uint16_t{0}};
}

}  // namespace gradwire
