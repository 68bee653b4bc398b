#include "gradwire/cli/doctor/in_job.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/master_server.h"
#include "gradwire/bootstrap/rendezvous_store.h"
#include "gradwire/cli/doctor/agent.h"

namespace gradwire::cli {
namespace {

constexpr Duration kJoinTimeout = std::chrono::seconds(30);
constexpr Duration kReportTimeout = std::chrono::minutes(3);
constexpr Duration kShutdownGrace = std::chrono::seconds(5);

std::vector<HostReport> reports_of(const bootstrap::Job& job) {
  std::vector<HostReport> reports;
  for (Rank rank = 0; rank < job.world_size; ++rank) {
    reports.push_back(
        {.name = fmt::format("rank {}", rank),
         .failure = {},
         .remedy = "was it started, and can its host reach rank 0? See its own output",
         .info = {},
         .reach = {}});
  }
  return reports;
}

}  // namespace

Result<std::optional<ClusterReport>> examine_in_job(const net::HostNetwork& network,
                                                    const bootstrap::Job& job) {
  if (job.launcher_store) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format(
            "{} runs its own store at MASTER_PORT: use gradwire doctor --hosts a,b,c instead",
            job.launcher));
  }
  GRADWIRE_RETURN_IF_ERROR(bootstrap::check_secret_at(job.secret, job.master_address));
  std::unique_ptr<bootstrap::RendezvousServer> server;
  if (job.rank == 0 && job.world_size > 1) {
    GRADWIRE_ASSIGN_OR_RETURN(
        auto started, bootstrap::serve_at_master(
                          network, job, net::Deadline::after(network.clock(), kJoinTimeout)));
    server = std::move(started);
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto store, bootstrap::RendezvousStore::connect(
                                            network,
                                            {.host = job.master_address,
                                             .port = job.master_port,
                                             .secret = job.secret,
                                             .rank = job.rank,
                                             .world_size = job.world_size,
                                             .job_id = job.job_id},
                                            net::Deadline::after(network.clock(), kJoinTimeout)));
  GRADWIRE_RETURN_IF_ERROR(examine_host(network, job, {}, "python3", MasterPort::in_use, *store));
  std::optional<ClusterReport> found;
  if (job.rank == 0) {
    found = collect(*store, reports_of(job), kReportTimeout);
    found->ranks = job.world_size;
    found->port = job.port;
    for (HostReport& report : found->reports) {
      if (report.info) report.name += fmt::format(" ({})", report.info->host);
    }
  }
  GRADWIRE_RETURN_IF_ERROR(store->finish());
  store.reset();
  if (server) server->wait_until_idle(net::Deadline::after(network.clock(), kShutdownGrace));
  return found;
}

}  // namespace gradwire::cli
