#include "gradwire/topology/topology.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "gradwire/base/check.h"

namespace gradwire::topology {
namespace {

std::vector<Host> one_host_a_port(const std::vector<Link>& ports) {
  std::vector<Host> hosts;
  for (const Link& port : ports) {
    hosts.emplace_back();
    hosts.back().rails = {port};
  }
  return hosts;
}

std::vector<int> one_rank_a_host(std::size_t hosts) {
  std::vector<int> host_of(hosts);
  std::iota(host_of.begin(), host_of.end(), 0);
  return host_of;
}

Link path_between(const Host& a, const Host& b) {
  Link path{std::max(a.rails.front().latency, b.rails.front().latency), 0};
  for (std::size_t rail = 0; rail < std::min(a.rails.size(), b.rails.size()); ++rail) {
    path.bytes_per_second +=
        std::min(a.rails[rail].bytes_per_second, b.rails[rail].bytes_per_second);
  }
  return path;
}

}  // namespace

Link Host::port() const {
  Link all{rails.front().latency, 0};
  for (const Link& rail : rails) all.bytes_per_second += rail.bytes_per_second;
  return all;
}

Topology Topology::uniform(int ranks, Link link) {
  return Topology(std::vector<Link>(static_cast<std::size_t>(ranks), link));
}

Topology::Topology(std::vector<Link> ports)
    : Topology(one_host_a_port(ports), one_rank_a_host(ports.size())) {}

Topology::Topology(std::vector<Host> hosts, std::vector<int> host_of)
    : hosts_(std::move(hosts)),
      host_of_(std::move(host_of)),
      ranks_on_(hosts_.size()),
      measured_(hosts_.size() * hosts_.size()) {
  GRADWIRE_CHECK(!host_of_.empty());
  for (Rank rank = 0; rank < ranks(); ++rank) {
    GRADWIRE_CHECK(this->host_of(rank) >= 0 && this->host_of(rank) < this->hosts());
    ranks_on_[static_cast<std::size_t>(this->host_of(rank))].push_back(rank);
  }
  for (int number = 0; number < this->hosts(); ++number) {
    GRADWIRE_CHECK(!host(number).rails.empty() && !ranks_on(number).empty());
  }
}

void Topology::set_measured(int from_host, int to_host, Link link) {
  GRADWIRE_CHECK(from_host != to_host && link.bytes_per_second > 0);
  measured_[pair(from_host, to_host)] = link;
}

Topology Topology::restricted_to(std::span<const Rank> ranks) const {
  std::vector<int> kept;  // Numbers of hosts, in the order of their first rank.
  std::vector<int> host_of;
  std::vector<Host> hosts;
  for (const Rank rank : ranks) {
    const auto place = std::ranges::find(kept, this->host_of(rank));
    host_of.push_back(static_cast<int>(place - kept.begin()));
    if (place != kept.end()) continue;
    kept.push_back(this->host_of(rank));
    hosts.push_back(host(kept.back()));
  }
  Topology restricted(std::move(hosts), std::move(host_of));
  for (std::size_t a = 0; a < kept.size(); ++a) {
    for (std::size_t b = 0; b < kept.size(); ++b) {
      restricted.measured_[a * kept.size() + b] = measured_[pair(kept[a], kept[b])];
    }
  }
  return restricted;
}

Link Topology::path(Rank from, Rank to) const {
  const int a = host_of(from);
  const int b = host_of(to);
  if (a == b) return host(a).inside;
  if (const std::optional<Link>& known = measured_[pair(a, b)]) return *known;
  return path_between(host(a), host(b));
}

}  // namespace gradwire::topology
