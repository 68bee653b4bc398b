#include "gradwire/comm/job_topology.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/topology/machine.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire {
namespace {

/// Result of reading the topology file. Only rank 0 may be able to read it, so errors are
/// distributed too.
struct Reading {
  bool failed = false;
  std::string text;
};

Reading read(const std::string& path) {
  if (path.empty()) return {};
  const Result<topology::Cluster> cluster = topology::read_cluster(path);
  if (!cluster) return {.failed = true, .text = cluster.error().message};
  return {.failed = false, .text = to_json(*cluster)};
}

/// Distributes rank 0's reading to every rank: first its length and whether it failed, then the
/// text.
Reading share(Communicator& communicator, Reading reading) {
  std::array<std::int64_t, 2> head{static_cast<std::int64_t>(reading.text.size()),
                                   reading.failed ? 1 : 0};
  communicator.broadcast({head.data(), head.size(), DataType::int64, nullptr}, 0).wait();
  if (head[0] == 0) return {};
  reading.text.resize(static_cast<std::size_t>(head[0]));
  communicator.broadcast({reading.text.data(), reading.text.size(), DataType::uint8, nullptr}, 0)
      .wait();
  reading.failed = head[1] != 0;
  return reading;
}

/// Returns, by rank, the name that its host has in the file.
std::vector<std::string> host_names(const std::vector<bootstrap::RankEndpoint>& endpoints) {
  const std::vector<int> machines = bootstrap::machine_numbers(endpoints);
  std::vector<std::string> by_machine;
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank) {
    if (machines[rank] == static_cast<int>(by_machine.size())) {
      by_machine.push_back(endpoints[rank].host);
    }
  }
  by_machine = topology::distinct_names(by_machine);
  std::vector<std::string> names;
  for (int machine : machines) names.push_back(by_machine[static_cast<std::size_t>(machine)]);
  return names;
}

/// Marks hosts that share their processors.
void number_kernels(std::vector<topology::Host>& hosts, const std::vector<std::string>& kernels) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (kernels[i].empty() || std::ranges::count(kernels, kernels[i]) < 2) continue;
    hosts[i].kernel = static_cast<int>(std::ranges::find(kernels, kernels[i]) - kernels.begin());
  }
}

/// With more ranks than processors, a message waits until its receiver is scheduled. The latency is
/// measured with four ranks on two processors.
void slow_down_crowds(std::vector<topology::Host>& hosts, const std::vector<int>& host_of) {
  constexpr Duration kTurn = std::chrono::microseconds(20);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto ranks = std::ranges::count(host_of, static_cast<int>(i));
    if (hosts[i].cores > 0 && ranks > hosts[i].cores) hosts[i].inside.latency = kTurn;
  }
}

}  // namespace

topology::Topology assumed_topology(const std::vector<bootstrap::RankEndpoint>& endpoints) {
  const std::vector<int> host_of = bootstrap::machine_numbers(endpoints);
  std::vector<topology::Host> hosts;
  std::vector<std::string> kernels;  // By host.
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank) {
    if (host_of[rank] < static_cast<int>(hosts.size())) continue;
    const bootstrap::RankEndpoint& endpoint = endpoints[rank];
    kernels.push_back(topology::kernel_of(endpoint.machine));
    hosts.push_back(
        {.name = endpoint.host,
         .rails = std::vector<topology::Link>(endpoint.rails.size(), Tuner::assumed_link()),
         .cores = endpoint.cores});
  }
  number_kernels(hosts, kernels);
  slow_down_crowds(hosts, host_of);
  return topology::Topology(std::move(hosts), host_of);
}

topology::JobTopology agree_on_topology(Communicator& communicator,
                                        const std::vector<bootstrap::RankEndpoint>& endpoints,
                                        const std::string& path) {
  const Reading reading = share(communicator, communicator.rank() == 0 ? read(path) : Reading{});
  if (reading.failed) refuse(reading.text);
  if (reading.text.empty()) return {.topology = assumed_topology(endpoints), .choices = {}};
  const topology::Cluster cluster = value_or_throw(topology::parse_cluster(reading.text));
  return topology::job_of(cluster,
                          value_or_throw(topology::topology_for(cluster, host_names(endpoints))));
}

}  // namespace gradwire
