#include "gradwire/cli/doctor/ward.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/cli/doctor/agent.h"
#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/comm/rendezvous_store.h"
#include "gradwire/net/shared_port.h"

namespace gradwire {
namespace {

constexpr Duration kForAllToJoin = std::chrono::seconds(30);
constexpr Duration kForAnotherNote = std::chrono::minutes(3);
constexpr Duration kFarewell = std::chrono::seconds(5);

/// Behind the port that the doctors of this host share, if that is the master's too.
Result<std::unique_ptr<Door>> open_store_door(const Job& job, const SocketAddress& address) {
  if (job.port == 0 || job.port != job.master_port) {
    auto listener = listen_on(address);
    if (!listener) return tl::unexpected<Error>(listener.error());
    return std::make_unique<ListeningDoor>(std::move(*listener));
  }
  const PortMember member{.destination = {service_number(kStorePurpose), 0},
                          .addresses = {address}};
  auto door = SharedPortDoor::open(shared_port_name(job.secret, job.port), member,
                                   Deadline::after(kForAllToJoin));
  if (!door) return tl::unexpected<Error>(door.error());
  return std::move(*door);
}

Result<std::unique_ptr<RendezvousServer>> serve(const Job& job) {
  const auto addresses = resolve(job.master_address, job.master_port);
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  Error last;
  for (const SocketAddress& address : *addresses) {
    auto door = open_store_door(job, address);
    if (door) return RendezvousServer::start(std::move(*door), job.secret, job.world_size);
    last = door.error();
  }
  return failure(last.kind, last.message + " (rank 0, at MASTER_ADDR:MASTER_PORT)");
}

std::vector<Patient> patients_of(const Job& job) {
  std::vector<Patient> patients;
  for (Rank rank = 0; rank < job.world_size; ++rank) {
    patients.push_back(
        {.name = fmt::format("rank {}", rank),
         .failure = {},
         .remedy = "was it started, and can its host reach rank 0? It says so itself",
         .facts = {},
         .reach = {}});
  }
  return patients;
}

}  // namespace

Result<std::optional<Examination>> examine_in_job(const Job& job) {
  if (job.launcher_store) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} keeps a store of its own at MASTER_PORT: use gradwire doctor "
                               "--hosts a,b,c instead",
                               job.launcher));
  }
  std::unique_ptr<RendezvousServer> server;
  if (job.rank == 0 && job.world_size > 1) {
    auto started = serve(job);
    if (!started) return tl::unexpected<Error>(started.error());
    server = std::move(*started);
  }
  auto store = RendezvousStore::connect({.host = job.master_address,
                                         .port = job.master_port,
                                         .secret = job.secret,
                                         .rank = job.rank,
                                         .world_size = job.world_size},
                                        Deadline::after(kForAllToJoin));
  if (!store) return tl::unexpected<Error>(store.error());
  if (Status done = examine_from_here(job, {}, **store); !done) {
    return tl::unexpected<Error>(done.error());
  }
  std::optional<Examination> found;
  if (job.rank == 0) {
    found = collect(**store, patients_of(job), kForAnotherNote);
    found->ranks = job.world_size;
    for (Patient& patient : found->patients) {
      if (patient.facts) patient.name += fmt::format(" ({})", patient.facts->host);
    }
  }
  if (Status finished = (*store)->finish(); !finished) {
    return tl::unexpected<Error>(finished.error());
  }
  store->reset();
  if (server) server->wait_until_alone(Deadline::after(kFarewell));
  return found;
}

}  // namespace gradwire
