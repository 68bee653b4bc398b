#include "gradwire/train/servers/connect_servers.h"

#include <string>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/net/address.h"
#include "gradwire/net/socket.h"

namespace gradwire {
namespace {

std::shared_ptr<Communicator> connect_pairs(const bootstrap::Job& job) {
  return Communicator::connect(job, {.scope = "servers", .failure_domain = FailureDomain::pair});
}

/// Address, port and secret of the second start of the group, chosen by rank 0.
struct Meeting {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
};

Meeting meeting_of(const bootstrap::Job& job, const ProcessGroup& group) {
  std::string said;
  if (group->getRank() == 0) {
    const std::string address = job.rank == 0 ? job.master_address : net::host_name();
    const std::uint16_t port =
        job.port != 0
            ? job.port
            : value_or_throw(net::free_port(value_or_throw(net::resolve(address, 0)).front()));
    said = address + " " + std::to_string(port) + " " +
           (job.secret.empty() ? random_hex(32) : job.secret);
  }
  said = gather_texts(*group, said).front();
  const std::size_t first = said.find(' '), second = said.find(' ', first + 1);
  return {said.substr(0, first),
          static_cast<std::uint16_t>(std::stoi(said.substr(first + 1, second - first - 1))),
          said.substr(second + 1)};
}

ServersPlace beside_workers(bootstrap::Job job, const ProcessGroup& group, int servers) {
  const int ranks = group->getSize();
  if (servers > ranks) {
    refuse("Served: {} servers beside {} workers: there can be at most one on each", servers,
           ranks);
  }
  servers::Placement placement{
      .workers = ranks, .servers = servers == 0 ? ranks : servers, .beside_workers = true};
  if (ranks > 1) {
    const Meeting meeting = meeting_of(job, group);
    job.master_address = meeting.address;
    job.master_port = meeting.port;
    job.secret = meeting.secret;
  }
  job.rank = group->getRank();
  job.world_size = ranks;
  job.job_id += "/servers";
  job.launcher_store = false;
  const int number = job.rank < placement.servers ? job.rank : -1;
  return {placement, connect_pairs(job), number};
}

}  // namespace

ServersPlace connect_servers(const ProcessGroup& group, int beside) {
  const bootstrap::Job job = bootstrap::Job::from_environment();
  const auto servers = bootstrap::servers_job(job);
  if (!servers) return beside_workers(job, group, beside);
  if (group->getSize() != job.world_size) {
    refuse(
        "Served: the process group has {} of {} ranks; with gradwire run --servers it must have "
        "all of them",
        group->getSize(), job.world_size);
  }
  return {{.workers = servers->workers, .servers = servers->servers, .beside_workers = false},
          connect_pairs(servers->all),
          servers->serves ? job.rank : -1};
}

}  // namespace gradwire
