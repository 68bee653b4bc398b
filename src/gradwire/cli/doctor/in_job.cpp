#include "gradwire/cli/doctor/in_job.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/store/job_store.h"
#include "gradwire/cli/doctor/agent.h"

namespace gradwire::cli {
namespace {

constexpr Duration kJoinTimeout = std::chrono::seconds(30);
constexpr Duration kReportTimeout = std::chrono::minutes(3);

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

Result<std::optional<ClusterReport>> examine_in_job(std::shared_ptr<const net::HostNetwork> network,
                                                    const bootstrap::Job& job) {
  if (job.launcher_store) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format(
            "{} runs its own store at MASTER_PORT: use gradwire doctor --hosts a,b,c instead",
            job.launcher));
  }
  GRADWIRE_ASSIGN_OR_RETURN(
      const auto store, bootstrap::JobStore::open(
                            network, job, net::Deadline::after(network->clock(), kJoinTimeout)));
  GRADWIRE_RETURN_IF_ERROR(examine_host(*network, job, {}, "python3", MasterPort::in_use, *store));
  std::optional<ClusterReport> found;
  if (job.rank == 0) {
    found = collect(*store, reports_of(job), kReportTimeout);
    found->ranks = job.world_size;
    found->port = job.port;
    for (HostReport& report : found->reports) {
      if (report.info) report.name += fmt::format(" ({})", report.info->host);
    }
  }
  return found;
}

}  // namespace gradwire::cli
