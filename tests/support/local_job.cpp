#include "tests/support/local_job.h"

#include <stdexcept>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/topology/machine.h"
#include "gradwire/topology/topology_file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

/// Runs `body` for each rank at once. Returns what each threw, as text.
std::vector<std::string> run_on_threads(int ranks, const std::function<void(Rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (Rank r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// 127.0.<host>.<rail>, both from 1, so that no two hosts share an address.
std::vector<std::string> addresses_of(const topology::Topology& topology, int host) {
  std::vector<std::string> addresses;
  for (std::size_t rail = 1; rail <= topology.host(host).rails.size(); ++rail) {
    addresses.push_back(fmt::format("127.0.{}.{}", host + 1, rail));
  }
  return addresses;
}

void place(bootstrap::Job& job, const topology::Topology& topology) {
  const int host = topology.host_of(job.rank);
  const auto ranks = topology.ranks_on(host);
  job.local_rank = static_cast<int>(std::ranges::find(ranks, job.rank) - ranks.begin());
  job.local_world_size = static_cast<int>(ranks.size());
  job.addresses = addresses_of(topology, host);
  job.machine = fmt::format("{}/host {}", topology::machine_identity(), host);
}

/// Returns the names that a job gives to hosts with equal host names.
std::vector<std::string> host_names(const topology::Topology& topology) {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) throw std::runtime_error("no host name");
  return topology::distinct_names(
      std::vector<std::string>(static_cast<std::size_t>(topology.hosts()), name));
}

topology::MeasuredPath path_of(int from, int to, const topology::Link& link) {
  return {
      .from = from, .to = to, .latency = link.latency, .bytes_per_second = link.bytes_per_second};
}

/// The topology as if it had been measured.
topology::Cluster cluster_of(const topology::Topology& topology) {
  topology::Cluster cluster;
  const std::vector<std::string> names = host_names(topology);
  for (int number = 0; number < topology.hosts(); ++number) {
    const topology::Host& host = topology.host(number);
    topology::MeasuredHost& measured = cluster.hosts.emplace_back();
    measured.name = names[static_cast<std::size_t>(number)];
    measured.ranks = static_cast<int>(topology.ranks_on(number).size());
    measured.inside = host.inside;
    for (const topology::Link& rail : host.rails) {
      measured.rails.push_back(
          {.interface = "lo", .bytes_per_second = rail.bytes_per_second, .latency = rail.latency});
    }
  }
  for (int a = 0; a < topology.hosts(); ++a) {
    for (int b = 0; b < topology.hosts(); ++b) {
      if (const auto link = topology.measured(a, b)) cluster.paths.push_back(path_of(a, b, *link));
    }
  }
  return cluster;
}

}  // namespace

std::string name_of(Wire wire) {
  return wire == Wire::shm ? "shm" : wire == Wire::tcp ? "tcp" : "tls";
}

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  // With this option on both sockets, listen_on() succeeds on this port. The kernel still does not
  // pick the port for sockets that ask for any.
  const int on = 1;
  const int reuse = ::setsockopt(socket_.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto any = value_or_throw(net::SocketAddress::of("127.0.0.1", 0));
  if (reuse != 0 || ::bind(socket_.descriptor(), any.data(), any.size()) != 0) {
    throw std::runtime_error("no free port");
  }
}

std::vector<bootstrap::Job> local_jobs(int ranks, const LocalNetwork& network, std::uint16_t port) {
  std::vector<bootstrap::Job> jobs(static_cast<std::size_t>(ranks));
  for (Rank r = 0; r < ranks; ++r) {
    bootstrap::Job& job = jobs[static_cast<std::size_t>(r)];
    job.rank = job.local_rank = r;
    job.world_size = job.local_world_size = ranks;
    job.master_port = port;
    job.secret = "a secret of the tests";
    job.encryption = network.wire == Wire::tls;
    job.shared_memory = network.wire == Wire::shm;
    if (network.topology) place(job, *network.topology);
  }
  return jobs;
}

LocalJob::LocalJob(int ranks, const CommunicatorOptions& options, const LocalNetwork& network)
    : communicators_(static_cast<std::size_t>(ranks)) {
  const ReservedPort port;
  const TemporaryFolder folder;
  CommunicatorOptions given = options;
  if (network.topology) {
    given.topology = folder / "topology.json";
    topology::write_cluster(cluster_of(*network.topology), given.topology);
  }
  const std::vector<bootstrap::Job> jobs = local_jobs(ranks, network, port.number());
  const auto errors = run_on_threads(ranks, [&](Rank r) {
    const auto i = static_cast<std::size_t>(r);
    communicators_[i] = Communicator::connect(jobs[i], given);
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

std::vector<std::string> LocalJob::run(const std::function<void(Rank, Communicator&)>& body) {
  return run_on_threads(ranks(), [&](Rank r) {
    if (communicators_[static_cast<std::size_t>(r)]) body(r, on(r));
  });
}

}  // namespace gradwire::test
