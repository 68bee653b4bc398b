#include "gradwire/plan/simulate/simulated_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire::plan {
namespace {

using Number = schedule::MessageGraph::Number;

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
std::vector<Sent> sent_by(const schedule::Program& program, Symmetry symmetry, const Fabric& fabric,
                          int host) {
  std::vector<Sent> sent;
  for (const schedule::Op& op : program.ops) {
    if (!schedule::sends(op)) continue;
    sent.push_back({moved(symmetry, fabric, op.peer, inverse(symmetry, fabric, host)),
                    schedule::extent(op).count});
  }
  return sent;
}

bool holds(Symmetry symmetry, const schedule::Schedule& schedule, const Fabric& fabric) {
  const int n = fabric.hosts;
  if (symmetry == Symmetry::exclusive_or && (n & (n - 1)) != 0) return false;
  for (int local = 0; local < fabric.ranks_per_host; ++local) {
    const auto sent = [&](int of_host) {
      const Rank rank = of_host * fabric.ranks_per_host + local;
      return sent_by(schedule.program(rank), symmetry, fabric, of_host);
    };
    const std::vector<Sent> own = sent(0);
    for (const int other : {1, n / 3, n / 2, n - 1}) {
      if (other < n && sent(other) != own) return false;
    }
  }
  return true;
}

std::optional<Symmetry> symmetry_of(const schedule::Schedule& schedule, const Fabric& fabric) {
  for (const Symmetry symmetry : {Symmetry::rotation, Symmetry::exclusive_or}) {
    if (holds(symmetry, schedule, fabric)) return symmetry;
  }
  return std::nullopt;
}

/// Returns how many hosts of a rack send to another rack, if each sends to the host that is to it
/// as `distance` is to host 0.
int crossing(Symmetry symmetry, const Fabric& fabric, int distance) {
  const int rack = fabric.rack_hosts;
  if (!fabric.has_racks()) return 0;
  if (symmetry == Symmetry::exclusive_or) return distance >= rack ? rack : 0;
  return std::min({distance, rack, fabric.hosts - distance});
}

/// Messages of each stream in order, by sender and receiver.
using Streams = std::map<std::pair<Rank, Rank>, std::vector<Number>>;

}  // namespace

SimulatedRanks::SimulatedRanks(const schedule::Schedule& schedule, const Fabric& fabric)
    : fabric_(fabric), chunks_(schedule.chunks) {
  GRADWIRE_CHECK(schedule.ranks == fabric.ranks());
}

/// Adds the program of `stands_for` as that of `rank`.
Number SimulatedRanks::add(const schedule::Program& program, Rank rank, Rank stands_for) {
  const auto host = static_cast<std::uint32_t>(fabric_.host_of(rank));
  const int own = fabric_.host_of(stands_for);
  for (const schedule::Op& op : program.ops) {
    const bool message = schedule::sends(op) || schedule::receives(op);
    Place place{.host = host, .share = static_cast<double>(schedule::extent(op).count) / chunks_};
    place.inside = message && fabric_.host_of(op.peer) == own;
    if (schedule::sends(op) && fabric_.rack_of(fabric_.host_of(op.peer)) != fabric_.rack_of(own))
      place.crossing = 1;
    places_.push_back(place);
  }
  hosts_ = std::max(hosts_, host + 1);
  return graph_.add(program, static_cast<Number>(rank));
}

SimulatedRanks SimulatedRanks::of_all(const schedule::Schedule& schedule, const Fabric& fabric) {
  SimulatedRanks all(schedule, fabric);
  // Keys combine sender and receiver; after sorting by key, then program order, sends and receives
  // match one by one.
  std::vector<std::pair<std::uint64_t, Number>> sent, received;
  const auto stream = [](Rank from, Rank to) {
    return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  };
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    const schedule::Program program = schedule.program(rank);
    Number number = all.add(program, rank, rank);
    for (const schedule::Op& op : program.ops) {
      if (schedule::sends(op)) sent.emplace_back(stream(rank, op.peer), number);
      if (schedule::receives(op)) received.emplace_back(stream(op.peer, rank), number);
      ++number;
    }
  }
  std::ranges::sort(sent);
  std::ranges::sort(received);
  GRADWIRE_CHECK(sent.size() == received.size());
  for (std::size_t i = 0; i < sent.size(); ++i)
    all.graph_.match(sent[i].second, received[i].second);
  all.connect();
  return all;
}

std::optional<SimulatedRanks> SimulatedRanks::of_one(const schedule::Schedule& schedule,
                                                     const Fabric& fabric) {
  const auto symmetry = fabric.equal_ports() ? symmetry_of(schedule, fabric) : std::nullopt;
  if (!symmetry) return std::nullopt;
  SimulatedRanks one(schedule, fabric);
  Streams received;  // From the peer to the rank of this host.
  std::vector<std::pair<Rank, Number>> sent;
  for (Rank rank = 0; rank < fabric.ranks_per_host; ++rank) {
    const schedule::Program program = schedule.program(rank);
    Number number = one.add(program, rank, rank);
    for (const schedule::Op& op : program.ops) {
      if (schedule::receives(op)) received[{op.peer, rank}].push_back(number);
      if (schedule::sends(op)) {
        sent.emplace_back(op.peer, number);
        one.places_[number].crossing = crossing(*symmetry, fabric, fabric.host_of(op.peer));
      }
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
  one.connect();
  return one;
}

void SimulatedRanks::connect() {
  graph_.connect();
  std::vector<double> sent(hosts_), received(hosts_);
  for (Number op = 0; op < graph_.size(); ++op) {
    const Place& place = places_[op];
    if (graph_.op(op).partner == schedule::kNoNode || place.inside) continue;
    (graph_.op(op).kind == schedule::OpKind::send ? sent : received)[place.host] += place.share;
  }
  for (std::uint32_t host = 0; host < hosts_; ++host) {
    const double share = std::max(sent[host], received[host]);
    port_share_ = std::max(port_share_, share);
    min_seconds_ = std::max(min_seconds_, share / fabric_.port_rate(static_cast<int>(host)));
  }
}

/// Ports of hosts come first, then one per rank, for messages inside its host.
schedule::LinkMap SimulatedRanks::links(double bytes, const schedule::CostOptions& options) const {
  schedule::LinkMap map{.hosts = hosts_};
  for (std::uint32_t host = 0; host < hosts_; ++host)
    map.ports.push_back(fabric_.port_rate(static_cast<int>(host)));
  map.ports.resize(hosts_ + graph_.ranks(), fabric_.inside.bytes_per_second);
  map.slowdown.assign(graph_.ranks(), 1);
  if (fabric_.limited_racks())
    map.uplinks.assign(static_cast<std::size_t>(fabric_.racks()), fabric_.uplink_rate());
  map.ops.reserve(graph_.size());
  for (Number op = 0; op < graph_.size(); ++op) map.ops.push_back(load(op, bytes, options));
  schedule::add_incast(graph_, fabric_.ranks(), options.incast, map);
  return map;
}

schedule::OpLoad SimulatedRanks::load(Number op, double bytes,
                                      const schedule::CostOptions& options) const {
  const auto nanoseconds = [](Duration time) { return static_cast<double>(time.count()); };
  const Place& place = places_[op];
  schedule::OpLoad load{.bytes = place.share * bytes};
  const Number partner = graph_.op(op).partner;
  if (partner == schedule::kNoNode) return load;
  load.port = place.inside ? hosts_ + graph_.op(op).rank : place.host;
  load.handling = nanoseconds(place.inside ? options.per_segment_inside : options.per_segment);
  load.latency = nanoseconds((place.inside ? fabric_.inside : fabric_.port).latency);
  if (place.crossing == 0 || !fabric_.limited_racks()) return load;
  const auto rack = [&](Number end) {
    return static_cast<std::uint32_t>(fabric_.rack_of(static_cast<int>(places_[end].host)));
  };
  load.up = rack(op);
  load.down = rack(partner);
  load.alike = place.crossing;
  return load;
}

OperationTime SimulatedRanks::time(double bytes, const schedule::CostOptions& options) const {
  const schedule::LinkMap map = links(bytes, options);
  schedule::LinkModel model(graph_, map, options);
  const double seconds = 1e-9 * model.run();
  return {seconds, std::min(seconds, 1e-9 * model.busiest_port()), {}, port_share_ * bytes};
}

}  // namespace gradwire::plan
