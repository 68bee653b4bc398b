#include "gradwire/plan/simulate/simulated_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/engine/outbox.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

using Number = MessageGraph::Number;

/// How the ranks of other hosts correspond to those of host 0.
enum class Symmetry : std::uint8_t { rotation, exclusive_or };

/// Returns the rank that is to `host` as `rank` is to host 0.
Rank moved(Symmetry symmetry, const Fabric& fabric, Rank rank, int host) {
  const int own = fabric.host_of(rank);
  const int there = symmetry == Symmetry::rotation ? (own + host) % fabric.hosts : own ^ host;
  return there * fabric.ranks_per_host + rank % fabric.ranks_per_host;
}

/// Returns the inverse of `host`: the host to which host 0 is as `host` is to host 0.
int inverse(Symmetry symmetry, const Fabric& fabric, int host) {
  return symmetry == Symmetry::rotation ? (fabric.hosts - host) % fabric.hosts : host;
}

struct Sent {
  Rank peer = 0;  ///< Relative to host 0.
  std::uint32_t count = 0;

  bool operator==(const Sent&) const = default;
};

/// Returns the sends of a program in order. Receives match other programs' sends, so their order
/// does not matter.
std::vector<Sent> sent_by(const Program& program, Symmetry symmetry, const Fabric& fabric,
                          int host) {
  std::vector<Sent> sent;
  for (const Op& op : program.ops) {
    if (!sends(op)) continue;
    sent.push_back(
        {moved(symmetry, fabric, op.peer, inverse(symmetry, fabric, host)), extent(op).count});
  }
  return sent;
}

bool holds(Symmetry symmetry, const Schedule& schedule, const Fabric& fabric, int host) {
  const int n = fabric.hosts;
  if (symmetry == Symmetry::exclusive_or && (n & (n - 1)) != 0) return false;
  for (int local = 0; local < fabric.ranks_per_host; ++local) {
    const auto sent = [&](int of_host) {
      const Rank rank = of_host * fabric.ranks_per_host + local;
      return sent_by(schedule.program(rank), symmetry, fabric, of_host);
    };
    const std::vector<Sent> own = sent(host);
    for (const int other : {0, 1, n / 3, n / 2, n - 1}) {
      if (other >= n || other == host) continue;
      if (sent(other) != own) return false;
    }
  }
  return true;
}

std::optional<Symmetry> symmetry_of(const Schedule& schedule, const Fabric& fabric, int host) {
  for (const Symmetry symmetry : {Symmetry::rotation, Symmetry::exclusive_or}) {
    if (holds(symmetry, schedule, fabric, host)) return symmetry;
  }
  return std::nullopt;
}

/// Messages of each stream in order, by sender and receiver.
using Streams = std::map<std::pair<Rank, Rank>, std::vector<Number>>;

}  // namespace

Number SimulatedRanks::add(const Program& program, const Fabric& fabric, std::uint32_t chunks,
                           Rank rank, Rank stands_for) {
  const auto host = static_cast<std::uint32_t>(fabric.host_of(rank));
  for (const Op& op : program.ops) {
    const bool message = sends(op) || receives(op);
    places_.push_back({.host = host,
                       .inside = message && fabric.host_of(op.peer) == fabric.host_of(stands_for),
                       .share = static_cast<double>(extent(op).count) / chunks});
  }
  hosts_ = std::max(hosts_, host + 1);
  return graph_.add(program, static_cast<Number>(rank));
}

SimulatedRanks SimulatedRanks::of_all(const Schedule& schedule, const Fabric& fabric) {
  GRADWIRE_CHECK(schedule.ranks == fabric.ranks());
  SimulatedRanks all;
  // Keys combine sender and receiver; after sorting by key, then program order, sends and receives
  // match one by one.
  std::vector<std::pair<std::uint64_t, Number>> sent, received;
  const auto stream = [](Rank from, Rank to) {
    return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  };
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    const Program program = schedule.program(rank);
    Number number = all.add(program, fabric, schedule.chunks, rank, rank);
    for (const Op& op : program.ops) {
      if (sends(op)) sent.emplace_back(stream(rank, op.peer), number);
      if (receives(op)) received.emplace_back(stream(op.peer, rank), number);
      ++number;
    }
  }
  std::ranges::sort(sent);
  std::ranges::sort(received);
  GRADWIRE_CHECK(sent.size() == received.size());
  for (std::size_t i = 0; i < sent.size(); ++i)
    all.graph_.match(sent[i].second, received[i].second);
  all.graph_.connect();
  return all;
}

std::optional<SimulatedRanks> SimulatedRanks::of_one(const Schedule& schedule, const Fabric& fabric,
                                                     int host) {
  GRADWIRE_CHECK(schedule.ranks == fabric.ranks());
  const auto symmetry = symmetry_of(schedule, fabric, host);
  if (!symmetry) return std::nullopt;
  SimulatedRanks one;
  Streams received;  // From the peer relative to host 0, to the rank of this host.
  std::vector<std::pair<Rank, Number>> sent;
  for (Rank local = 0; local < fabric.ranks_per_host; ++local) {
    const Rank rank = host * fabric.ranks_per_host + local;
    const Program program = schedule.program(rank);
    Number number = one.add(program, fabric, schedule.chunks, local, rank);
    for (const Op& op : program.ops) {
      const bool message = sends(op) || receives(op);
      const Rank peer =
          message ? moved(*symmetry, fabric, op.peer, inverse(*symmetry, fabric, host)) : -1;
      if (receives(op)) received[{peer, local}].push_back(number);
      if (sends(op)) sent.emplace_back(peer, number);
      ++number;
    }
  }
  std::map<std::pair<Rank, Rank>, std::size_t> taken;
  for (const auto& [peer, number] : sent) {
    // Relative to its peer, this host is at the inverse of the peer's host.
    const int back = inverse(*symmetry, fabric, fabric.host_of(peer));
    const auto local = static_cast<Rank>(one.graph_.op(number).rank);
    const std::pair stream{back * fabric.ranks_per_host + local, peer % fabric.ranks_per_host};
    const std::vector<Number>& there = received[stream];
    std::size_t& next = taken[stream];
    if (next == there.size()) return std::nullopt;
    one.graph_.match(number, there[next++]);
  }
  one.graph_.connect();
  return one;
}

/// Ports of hosts come first, then one per rank, for messages inside its host.
LinkMap SimulatedRanks::links(const Fabric& fabric, double bytes,
                              const CostOptions& options) const {
  LinkMap map;
  for (std::uint32_t host = 0; host < hosts_; ++host)
    map.ports.push_back(fabric.port_rate(static_cast<int>(host)));
  map.ports.resize(hosts_ + graph_.ranks(), fabric.inside.bytes_per_second);
  map.slowdown.assign(graph_.ranks(), 1);
  if (fabric.limited_racks())
    map.uplinks.assign(static_cast<std::size_t>(fabric.racks()), fabric.uplink_rate());
  map.ops.reserve(graph_.size());
  for (Number op = 0; op < graph_.size(); ++op) map.ops.push_back(load(op, fabric, bytes, options));
  return map;
}

OpLoad SimulatedRanks::load(Number op, const Fabric& fabric, double bytes,
                            const CostOptions& options) const {
  const auto nanoseconds = [](Duration time) { return static_cast<double>(time.count()); };
  const Place& place = places_[op];
  OpLoad load{.bytes = place.share * bytes};
  const std::size_t segment =
      options.segment_bytes > 0
          ? options.segment_bytes
          : segment_of(static_cast<std::size_t>(load.bytes), OutboxLimits{}.segment_bytes);
  load.segments = std::max(1.0, std::ceil(load.bytes / static_cast<double>(segment) - 1e-9));
  const Number partner = graph_.op(op).partner;
  if (partner == kNoNode) return load;
  load.port = place.inside ? hosts_ + graph_.op(op).rank : place.host;
  load.handling = nanoseconds(place.inside ? options.per_segment_inside : options.per_segment);
  load.latency = nanoseconds((place.inside ? fabric.inside : fabric.port).latency);
  if (place.inside || !fabric.limited_racks()) return load;
  const auto rack = [&](Number end) {
    return static_cast<std::uint32_t>(fabric.rack_of(static_cast<int>(places_[end].host)));
  };
  if (rack(op) != rack(partner)) {
    load.up = rack(op);
    load.down = rack(partner);
  }
  return load;
}

double SimulatedRanks::seconds(const Fabric& fabric, double bytes,
                               const CostOptions& options) const {
  const LinkMap map = links(fabric, bytes, options);
  return 1e-9 * LinkModel(graph_, map, options).run();
}

bool HostTraffic::neighbors_only() const {
  return rotation && shares.size() > 2 &&
         std::all_of(shares.begin() + 2, shares.end(), [](double share) { return share == 0; });
}

std::optional<HostTraffic> host_traffic(const Schedule& schedule, const Fabric& fabric) {
  const auto symmetry = symmetry_of(schedule, fabric, 0);
  if (!symmetry) return std::nullopt;
  HostTraffic traffic{std::vector<double>(static_cast<std::size_t>(fabric.hosts)),
                      *symmetry == Symmetry::rotation};
  for (Rank local = 0; local < fabric.ranks_per_host; ++local) {
    for (const Op& op : schedule.program(local).ops) {
      if (!sends(op)) continue;
      traffic.shares[static_cast<std::size_t>(fabric.host_of(op.peer))] +=
          static_cast<double>(extent(op).count) / schedule.chunks;
    }
  }
  return traffic;
}

}  // namespace gradwire
