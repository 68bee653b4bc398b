#include "gradwire/topology/cluster.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/suggest.h"

namespace gradwire::topology {
namespace {

/// Rates of equal links differ by at most this part.
constexpr double kSameRate = 0.05;

/// A pair's link may differ from its ends' rails by this part before it counts as different.
constexpr double kUsualRate = 0.1;
constexpr double kUsualLatency = 0.5;

constexpr Duration kMinLatency = std::chrono::nanoseconds(1);

bool near(double a, double b, double part) {
  return std::abs(a - b) <= part * std::max(a, b);
}

/// Replaces each rate by the median of its group. In ascending order, a group ends where a rate
/// exceeds the group's first by more than kSameRate.
void level(std::vector<double*> rates) {
  std::ranges::sort(rates, {}, [](const double* rate) { return *rate; });
  for (auto first = rates.begin(); first != rates.end();) {
    const auto last = std::find_if(
        first, rates.end(), [&](const double* rate) { return !near(**first, *rate, kSameRate); });
    const double median = **(first + (last - first) / 2);
    for (; first != last; ++first) **first = median;
  }
}

Host host_of(const MeasuredHost& measured) {
  Host host{.name = measured.name, .rails = {}, .cores = measured.cores, .kernel = measured.kernel};
  for (const MeasuredRail& rail : measured.rails) {
    host.rails.push_back({std::max(rail.latency, kMinLatency), rail.bytes_per_second});
  }
  if (measured.inside) host.inside = *measured.inside;
  return host;
}

std::vector<Host> levelled_hosts(const Cluster& cluster) {
  std::vector<Host> hosts;
  for (const MeasuredHost& measured : cluster.hosts) hosts.push_back(host_of(measured));
  std::vector<double*> rates;
  for (Host& host : hosts) {
    for (Link& rail : host.rails) {
      if (rail.bytes_per_second <= 0) rail.bytes_per_second = Link().bytes_per_second;
      rates.push_back(&rail.bytes_per_second);
    }
  }
  level(std::move(rates));
  return hosts;
}

/// All rails of a pair as one link; nullopt if none was measured.
std::optional<Link> link_of(const Cluster& cluster, int from, int to) {
  Link sum{kMinLatency, 0};
  for (int rail = 0; const MeasuredPath* path = cluster.path(from, to, rail); ++rail) {
    if (rail == 0) sum.latency = std::max(path->latency, kMinLatency);
    sum.bytes_per_second += path->bytes_per_second;
  }
  if (sum.bytes_per_second <= 0) return std::nullopt;
  return sum;
}

bool as_expected(const Link& found, const Link& expected) {
  const auto seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
  return near(found.bytes_per_second, expected.bytes_per_second, kUsualRate) &&
         near(seconds(found.latency), seconds(expected.latency), kUsualLatency);
}

/// `number_of`: each topology host's number in the cluster.
Topology build(const Cluster& cluster, const std::vector<int>& number_of,
               std::vector<int> host_of_rank) {
  const std::vector<Host> all = levelled_hosts(cluster);
  std::vector<Host> hosts;
  for (const int number : number_of) hosts.push_back(all[static_cast<std::size_t>(number)]);
  Topology topology(std::move(hosts), std::move(host_of_rank));
  for (int a = 0; a < topology.hosts(); ++a) {
    for (int b = 0; b < topology.hosts(); ++b) {
      if (a == b) continue;
      const auto found = link_of(cluster, number_of[static_cast<std::size_t>(a)],
                                 number_of[static_cast<std::size_t>(b)]);
      const Link expected =
          topology.path(topology.ranks_on(a).front(), topology.ranks_on(b).front());
      if (found && !as_expected(*found, expected)) topology.set_measured(a, b, *found);
    }
  }
  return topology;
}

}  // namespace

const MeasuredPath* Cluster::path(int from, int to, int rail) const {
  const auto found = std::ranges::find_if(paths, [&](const MeasuredPath& one) {
    return one.from == from && one.to == to && one.rail == rail;
  });
  return found == paths.end() ? nullptr : &*found;
}

bool is_black_hole(const Cluster& cluster, const MeasuredPath& path) {
  const auto mtu = [&](int host) {
    const MeasuredHost& end = cluster.hosts[static_cast<std::size_t>(host)];
    return end.rails[static_cast<std::size_t>(path.rail)].mtu;
  };
  const int min_mtu = std::min({mtu(path.from), mtu(path.to), kMaxPacketBytes});
  return path.largest_packet > 0 && path.largest_packet < min_mtu;
}

void set_rails_from_paths(Cluster& cluster) {
  for (std::size_t number = 0; number < cluster.hosts.size(); ++number) {
    auto& rails = cluster.hosts[number].rails;
    for (std::size_t k = 0; k < rails.size(); ++k) {
      double out = 0;
      double in = 0;
      Duration nearest = Duration::max();
      for (const MeasuredPath& path : cluster.paths) {
        if (static_cast<std::size_t>(path.rail) != k) continue;
        const bool leaves = static_cast<std::size_t>(path.from) == number;
        const bool enters = static_cast<std::size_t>(path.to) == number;
        if (leaves) out = std::max(out, path.bytes_per_second);
        if (enters) in = std::max(in, path.bytes_per_second);
        if (leaves || enters) nearest = std::min(nearest, path.latency);
      }
      rails[k].bytes_per_second = std::min(out, in);
      rails[k].latency = nearest == Duration::max() ? Duration::zero() : nearest;
    }
  }
}

Topology topology_of(const Cluster& cluster) {
  GRADWIRE_CHECK(!cluster.hosts.empty());
  std::vector<int> number_of;
  std::vector<int> host_of_rank;
  for (int host = 0; host < static_cast<int>(cluster.hosts.size()); ++host) {
    number_of.push_back(host);
    const int ranks = cluster.hosts[static_cast<std::size_t>(host)].ranks;
    host_of_rank.insert(host_of_rank.end(), static_cast<std::size_t>(ranks), host);
  }
  return build(cluster, number_of, std::move(host_of_rank));
}

Result<Topology> topology_for(const Cluster& cluster, const std::vector<std::string>& host_names) {
  GRADWIRE_CHECK(!host_names.empty());
  std::vector<int> number_of;
  std::vector<int> host_of_rank;
  for (const std::string& name : host_names) {
    const auto host = std::ranges::find(cluster.hosts, name, &MeasuredHost::name);
    if (host == cluster.hosts.end()) {
      std::vector<std::string_view> known;
      for (const MeasuredHost& one : cluster.hosts) known.push_back(one.name);
      return failure(ErrorKind::invalid_argument,
                     unknown_name("host in the topology", name, known) +
                         "; measure again with gradwire probe");
    }
    const int number = static_cast<int>(host - cluster.hosts.begin());
    const auto place = std::ranges::find(number_of, number);
    host_of_rank.push_back(static_cast<int>(place - number_of.begin()));
    if (place == number_of.end()) number_of.push_back(number);
  }
  return build(cluster, number_of, std::move(host_of_rank));
}

JobTopology job_of(const Cluster& cluster, Topology topology) {
  JobTopology job{.topology = std::move(topology), .choices = cluster.choices};
  std::erase_if(job.choices,
                [&](const MeasuredChoice& choice) { return choice.ranks != job.topology.ranks(); });
  return job;
}

}  // namespace gradwire::topology
