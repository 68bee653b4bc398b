#include "gradwire/host/servers/connect_servers.h"

#include <string>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/net/address.h"
#include "gradwire/net/socket.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {
namespace {

std::shared_ptr<Communicator> connect_pairs(const bootstrap::Job& job) {
  return Communicator::connect(job, {.scope = "servers", .failure_domain = FailureDomain::pair});
}

/// Address, port and secret of a second start of `members` consecutive ranks, chosen by the first.
struct Meeting {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
};

/// The address of this host that other hosts of the job can reach.
std::string address_towards_master(const bootstrap::Job& job) {
  const auto master = value_or_throw(net::resolve(job.master_address, job.master_port));
  return value_or_throw(net::route_source(master.front())).host();
}

Meeting meeting_of(const bootstrap::Job& job, const ProcessGroup& group, int members) {
  const int member = group->getRank() % members;
  std::string said;
  if (member == 0) {
    const std::string address = job.rank == 0 ? job.master_address : address_towards_master(job);
    const std::uint16_t port =
        job.port != 0
            ? job.port
            : value_or_throw(net::free_port(value_or_throw(net::resolve(address, 0)).front()));
    said = address + " " + std::to_string(port) + " " +
           (job.secret.empty() ? random_hex(32) : job.secret);
  }
  said = gather_texts(*group, said)[static_cast<std::size_t>(group->getRank() - member)];
  const std::size_t first = said.find(' '), second = said.find(' ', first + 1);
  return {said.substr(0, first),
          static_cast<std::uint16_t>(std::stoi(said.substr(first + 1, second - first - 1))),
          said.substr(second + 1)};
}

/// The job of `members` consecutive ranks of the group, to which this one belongs.
bootstrap::Job job_of(bootstrap::Job job, const ProcessGroup& group, int members,
                      const std::string& name) {
  if (members > 1) {
    const Meeting meeting = meeting_of(job, group, members);
    job.master_address = meeting.address;
    job.master_port = meeting.port;
    job.secret = meeting.secret;
  }
  job.rank = group->getRank() % members;
  job.world_size = members;
  job.job_id += "/" + name;
  job.launcher_store = false;
  return job;
}

ServersPlace beside_workers(const bootstrap::Job& job, const ProcessGroup& group, int servers) {
  const int ranks = group->getSize();
  if (servers > ranks) {
    refuse("Served: {} servers beside {} workers: there can be at most one on each", servers,
           ranks);
  }
  servers::Placement placement{
      .workers = ranks, .servers = servers == 0 ? ranks : servers, .beside_workers = true};
  const int number = group->getRank() < placement.servers ? group->getRank() : -1;
  return {placement, connect_pairs(job_of(job, group, ranks, "servers")), number};
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

bool note_optional_workers(const servers::Placement& placement, const servers::ServerPolicy& policy,
                           const ProcessGroup& workers, bool mirrored) {
  const bool is_whole_job = workers->getSize() == bootstrap::Job::from_environment().world_size;
  if (policy.has_common_steps() || !is_whole_job) return false;
  if (mirrored) {
    bootstrap::note_optional({0, placement.ranks()});
    return true;
  }
  // A worker beside a server is needed, and so are the others of its group.
  const int needed = placement.beside_workers ? placement.servers : 0;
  const int first = (needed + placement.members - 1) / placement.members * placement.members;
  bootstrap::note_optional({first, placement.workers});
  return true;
}

void leave_as_server(Communicator& pairs, const ProcessGroup& group) {
  pairs.leave_at_once("");
  if (const auto communicator = communicator_of(*group)) communicator->leave_at_once("");
}

std::shared_ptr<Communicator> connect_members(const ProcessGroup& workers, int members) {
  const std::string name = "members-" + std::to_string(workers->getRank() / members);
  // The launcher would take the ranks of the group for its own.
  const bootstrap::Environment unreported =
      [read = bootstrap::process_environment()](std::string_view variable) {
        return variable == bootstrap::kReportVariable ? std::nullopt : read(variable);
      };
  return Communicator::connect(job_of(bootstrap::Job::from_environment(), workers, members, name),
                               {.scope = "members", .environment = unreported});
}

}  // namespace gradwire
