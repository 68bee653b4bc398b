#include "gradwire/cli/probe/prober.h"

#include <algorithm>
#include <fstream>

#include "gradwire/base/cores.h"

namespace gradwire {
namespace {

/// The same for all that runs on one kernel, be it in containers, until it boots anew.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// Whether it is the lowest on its machine, which measures for all there: Roster::leader(), of
/// which the roster itself knows only once it has been told where these sockets are.
bool leads(const RankPlace& place, const std::vector<RankPlace>& places) {
  const auto name = [](const RankPlace& one) {
    return one.machine.empty() ? one.host : one.machine;
  };
  return &*std::ranges::find(places, name(place), name) == &place;
}

}  // namespace

Prober prober_of(const Job& job, const Mesh& mesh) {
  const RankPlace& place = mesh.places[static_cast<std::size_t>(job.rank)];
  return {.rank = job.rank,
          .ranks = job.world_size,
          .host = place.host,
          .machine = place.machine,
          .kernel = boot_id(),
          .cores = usable_cores(),
          .rails = place.rails,
          .port = leads(place, mesh.places) ? job.port : std::uint16_t{0}};
}

}  // namespace gradwire
