#include "gradwire/plan/simulate/message_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

using Number = MessageGraph::Number;

/// How the ranks of other hosts correspond to those of host 0.
enum class Symmetry : std::uint8_t { rotation, exclusive_or };

/// The rank that is to `host` what `rank` is to host 0.
Rank moved(Symmetry symmetry, const Fabric& fabric, Rank rank, int host) {
  const int own = fabric.host_of(rank);
  const int there = symmetry == Symmetry::rotation ? (own + host) % fabric.hosts : own ^ host;
  return there * fabric.ranks_per_host + rank % fabric.ranks_per_host;
}

/// The host from which host 0 is what `host` is to it: its inverse.
int inverse(Symmetry symmetry, const Fabric& fabric, int host) {
  return symmetry == Symmetry::rotation ? (fabric.hosts - host) % fabric.hosts : host;
}

struct Sent {
  Rank peer = 0;  ///< As seen from host 0.
  std::uint32_t count = 0;

  bool operator==(const Sent&) const = default;
};

/// What a program sends, in order. Receives correspond to what others send, and in which order
/// they are written changes nothing.
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

/// Messages in the order of a stream, from one rank to another.
using Streams = std::map<std::pair<Rank, Rank>, std::vector<Number>>;

}  // namespace

Number MessageGraph::add(const Program& program, const Fabric& fabric, std::uint32_t chunks,
                         Rank rank, Rank stands_for) {
  const Number first = size();
  const auto host = static_cast<Number>(fabric.host_of(rank));
  for (const gradwire::Op& from : program.ops) {
    const bool message = sends(from) || receives(from);
    ops_.push_back({.kind = from.kind,
                    .inside = message && fabric.host_of(from.peer) == fabric.host_of(stands_for),
                    .rank = static_cast<Number>(rank),
                    .host = host,
                    .share = static_cast<double>(extent(from).count) / chunks});
    for (const OpIndex earlier : program.after(from))
      before_.push_back({first + earlier, !flows_through(program.ops[earlier], from)});
    before_first_.push_back(static_cast<Number>(before_.size()));
  }
  ranks_ = std::max(ranks_, static_cast<Number>(rank) + 1);
  hosts_ = std::max(hosts_, host + 1);
  return first;
}

void MessageGraph::connect_behind() {
  behind_first_.assign(ops_.size() + 1, 0);
  for (const Arrow& arrow : before_) ++behind_first_[arrow.to + 1];
  for (std::size_t i = 1; i < behind_first_.size(); ++i) behind_first_[i] += behind_first_[i - 1];
  behind_.resize(before_.size());
  std::vector<Number> next(behind_first_.begin(), behind_first_.end() - 1);
  for (Number later = 0; later < size(); ++later) {
    for (const Arrow& arrow : before(later)) behind_[next[arrow.to]++] = {later, arrow.whole};
  }
}

MessageGraph MessageGraph::of_all(const Schedule& schedule, const Fabric& fabric) {
  GRADWIRE_CHECK(schedule.ranks == fabric.ranks());
  MessageGraph graph;
  // By sender and receiver in one number, and then in the order of programs: sorted, sends and
  // receives match one by one.
  std::vector<std::pair<std::uint64_t, Number>> sent, received;
  const auto stream = [](Rank from, Rank to) {
    return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  };
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    const Program program = schedule.program(rank);
    Number number = graph.add(program, fabric, schedule.chunks, rank, rank);
    for (const gradwire::Op& op : program.ops) {
      if (sends(op)) sent.emplace_back(stream(rank, op.peer), number);
      if (receives(op)) received.emplace_back(stream(op.peer, rank), number);
      ++number;
    }
  }
  std::ranges::sort(sent);
  std::ranges::sort(received);
  GRADWIRE_CHECK(sent.size() == received.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    graph.ops_[sent[i].second].partner = received[i].second;
    graph.ops_[received[i].second].partner = sent[i].second;
  }
  graph.connect_behind();
  return graph;
}

std::optional<MessageGraph> MessageGraph::of_one(const Schedule& schedule, const Fabric& fabric,
                                                 int host) {
  GRADWIRE_CHECK(schedule.ranks == fabric.ranks());
  const auto symmetry = symmetry_of(schedule, fabric, host);
  if (!symmetry) return std::nullopt;
  MessageGraph graph;
  Streams received;  // From the peer as host 0 sees it, to the rank of this host.
  std::vector<std::pair<Rank, Number>> sent;
  for (Rank local = 0; local < fabric.ranks_per_host; ++local) {
    const Rank rank = host * fabric.ranks_per_host + local;
    const Program program = schedule.program(rank);
    Number number = graph.add(program, fabric, schedule.chunks, local, rank);
    for (const gradwire::Op& op : program.ops) {
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
    // To its peer this host is where the inverse of the way to the peer leads.
    const int back = inverse(*symmetry, fabric, fabric.host_of(peer));
    const auto local = static_cast<Rank>(graph.ops_[number].rank);
    const std::pair stream{back * fabric.ranks_per_host + local, peer % fabric.ranks_per_host};
    const std::vector<Number>& there = received[stream];
    std::size_t& next = taken[stream];
    if (next == there.size()) return std::nullopt;
    graph.ops_[number].partner = there[next];
    graph.ops_[there[next++]].partner = number;
  }
  graph.connect_behind();
  return graph;
}

bool HostTraffic::only_neighbours() const {
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
