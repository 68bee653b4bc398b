#include "gradwire/cli/doctor/agent.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/rendezvous.h"
#include "gradwire/cli/doctor/look.h"
#include "gradwire/cli/doctor/reach.h"
#include "gradwire/cli/probe/measure.h"
#include "gradwire/cli/probe/prober.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire {
namespace {

constexpr Duration kForFacts = std::chrono::seconds(30);
constexpr Duration kForCalls = std::chrono::seconds(3);
constexpr Duration kForReach = std::chrono::minutes(3);
constexpr Duration kGlance = std::chrono::milliseconds(1);
constexpr Duration kForMesh = std::chrono::seconds(15);

/// Losses were measured before.
constexpr ProbeOptions kBriefly{
    .bandwidth_time = std::chrono::milliseconds(200), .loss_questions = 0, .round_trips = 100};

std::string key(const char* topic, int host) {
  return fmt::format("{}/{}", topic, host);
}

Result<std::vector<std::optional<HostFacts>>> facts_of_all(const Job& job, Store& store) {
  std::vector<std::optional<HostFacts>> all;
  for (int host = 0; host < job.world_size; ++host) {
    const auto text = store.get(key("facts", host), kForFacts);
    if (!text && text.error().kind != ErrorKind::timeout) {
      return tl::unexpected<Error>(text.error());
    }
    const auto facts = text ? parse_host_facts(*text) : failure(ErrorKind::timeout, "");
    all.push_back(facts ? std::optional(*facts) : std::nullopt);
  }
  return all;
}

/// Returns true if no finding so far keeps a job from connecting and sending. The result is the
/// same on all hosts.
Result<bool> all_well(const Job& job, Store& store,
                      const std::vector<std::optional<HostFacts>>& facts) {
  const bool all_there = std::ranges::all_of(facts, [](const auto& one) {
    return one && one->problems.empty() && one->port_problems.empty() && !one->rails.empty();
  });
  bool well = all_there && job.world_size > 1;
  for (int host = 0; host < job.world_size; ++host) {
    if (!facts[static_cast<std::size_t>(host)]) continue;  // It reports nothing.
    const auto text = store.get(key("reach", host), kForReach);
    if (!text && text.error().kind != ErrorKind::timeout) {
      return tl::unexpected<Error>(text.error());
    }
    const auto reach = text ? parse_reach_facts(*text) : failure(ErrorKind::timeout, "");
    well = well && reach && std::ranges::all_of(*reach, [&](const ReachFacts& one) {
             const auto mtu = [&](int end) {
               const auto& rails = facts[static_cast<std::size_t>(end)]->rails;
               return rails[static_cast<std::size_t>(one.rail)].mtu;
             };
             if (one.rail == kMasterDoor) return true;  // The rendezvous is reachable.
             const int least = std::min({mtu(host), mtu(one.to), kLargestPacket});
             const bool hole = one.largest_packet > 0 && one.largest_packet < least;
             return one.outcome == ReachFacts::Outcome::reached && !hole;
           });
  }
  return well;
}

Result<std::string> connect_and_measure(const Job& job, Store& store) {
  auto mesh = connect_mesh(job, {.timeout = kForMesh, .scope = "doctor"}, &store);
  if (!mesh) return tl::unexpected<Error>(mesh.error());
  const auto cluster = measure_cluster(*mesh->transport, prober_of(job, *mesh), kBriefly);
  if (!cluster) return tl::unexpected<Error>(cluster.error());
  return to_json(*cluster);
}

}  // namespace

Status examine_from_here(const Job& job, const std::vector<std::string>& names, MasterPort port,
                         Store& store) {
  HostFacts mine = look_at_host(names);
  const std::vector<RailPlace> rails = find_rails(job, mine.problems);
  mine.faster = faster_interfaces(rails);
  auto endpoint = std::make_unique<Endpoint>(job, rails, port, mine);
  if (Status set = store.set(key("facts", job.rank), to_json(mine)); !set) return set;
  const auto others = facts_of_all(job, store);
  if (!others) return tl::unexpected<Error>(others.error());
  const std::string reach = to_json(reach_all(job, rails, *others, kForCalls));
  if (Status set = store.set(key("reach", job.rank), reach); !set) return set;
  const auto well = all_well(job, store, *others);
  if (!well) return tl::unexpected<Error>(well.error());
  endpoint.reset();  // The mesh may need its port.
  std::string last = "";
  if (*well) {
    const auto measured = connect_and_measure(job, store);
    if (!measured) last = measured.error().message;
    if (measured && job.rank == 0) {
      if (Status set = store.set(key("cluster", 0), *measured); !set) return set;
    }
  }
  return store.set(key("mesh", job.rank), last);
}

Examination collect(Store& store, std::vector<Patient> patients, Duration patience) {
  Examination found{.patients = std::move(patients), .cluster = {}};
  for (std::size_t i = 0; i < found.patients.size(); ++i) {
    Patient& patient = found.patients[i];
    const int host = static_cast<int>(i);
    // The hosts' reports were waited for before.
    const auto facts = store.get(key("facts", host), kGlance);
    if (!facts) {
      if (patient.failure.empty()) patient.failure = facts.error().message;
      continue;
    }
    auto parsed = parse_host_facts(*facts);
    if (!parsed) {
      patient.failure = parsed.error().message;
      patient.remedy = "install the same gradwire on all hosts";
      continue;
    }
    patient.facts = std::move(*parsed);
    const auto reach = store.get(key("reach", host), patience);
    const auto mesh = store.get(key("mesh", host), patience);
    if (const auto paths = reach ? parse_reach_facts(*reach) : failure(ErrorKind::timeout, "")) {
      patient.reach = *paths;
    }
    patient.mesh_error = mesh ? *mesh : "it stopped early: " + mesh.error().message;
  }
  if (const auto text = store.get(key("cluster", 0), kGlance)) {
    if (auto cluster = parse_cluster(*text)) found.cluster = std::move(*cluster);
  }
  return found;
}

}  // namespace gradwire
