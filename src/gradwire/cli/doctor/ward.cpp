#include "gradwire/cli/doctor/ward.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/master_server.h"
#include "gradwire/bootstrap/rendezvous_store.h"
#include "gradwire/cli/doctor/agent.h"

namespace gradwire {
namespace {

constexpr Duration kForAllToJoin = std::chrono::seconds(30);
constexpr Duration kForAnotherNote = std::chrono::minutes(3);
constexpr Duration kFarewell = std::chrono::seconds(5);

std::vector<Patient> patients_of(const Job& job) {
  std::vector<Patient> patients;
  for (Rank rank = 0; rank < job.world_size; ++rank) {
    patients.push_back(
        {.name = fmt::format("rank {}", rank),
         .failure = {},
         .remedy = "was it started, and can its host reach rank 0? See its own output",
         .facts = {},
         .reach = {}});
  }
  return patients;
}

}  // namespace

Result<std::optional<Examination>> examine_in_job(const Job& job) {
  if (job.launcher_store) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format(
            "{} runs its own store at MASTER_PORT: use gradwire doctor --hosts a,b,c instead",
            job.launcher));
  }
  if (Status strong = check_secret_at(job.secret, job.master_address); !strong) {
    return tl::unexpected<Error>(strong.error());
  }
  std::unique_ptr<RendezvousServer> server;
  if (job.rank == 0 && job.world_size > 1) {
    auto started = serve_at_master(job, Deadline::after(kForAllToJoin));
    if (!started) return tl::unexpected<Error>(started.error());
    server = std::move(*started);
  }
  auto store = RendezvousStore::connect({.host = job.master_address,
                                         .port = job.master_port,
                                         .secret = job.secret,
                                         .rank = job.rank,
                                         .world_size = job.world_size,
                                         .job_id = job.job_id},
                                        Deadline::after(kForAllToJoin));
  if (!store) return tl::unexpected<Error>(store.error());
  if (Status done = examine_from_here(job, {}, MasterPort::in_use, **store); !done) {
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
