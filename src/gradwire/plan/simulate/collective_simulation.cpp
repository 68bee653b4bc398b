#include "gradwire/plan/simulate/collective_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/plan/simulate/executor_segment.h"
#include "gradwire/plan/simulate/message_graph.h"
#include "gradwire/plan/simulate/message_model.h"
#include "gradwire/plan/simulate/ring_path.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

/// Ops of all ranks together that are played through although one host could stand for all.
constexpr double kFewOps = 20'000;
/// Those that are played through at all: about a second.
constexpr double kMostOps = 1.5e6;
/// Hosts that algorithms may look at one by one.
constexpr int kMostHosts = 2048;
/// Ranks up to which it is looked at several hosts, as they add up in different orders.
constexpr int kManyRanks = 1024;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool looks_at_links(std::string_view algorithm) {
  return algorithm == "uneven" || algorithm == "spanning_trees";
}

bool looks_at_hosts(std::string_view algorithm) {
  return algorithm == "hierarchical" || algorithm == "leaders" || algorithm == "host_tree";
}

/// What an algorithm makes its schedule from. For those that do not care which ranks are on one
/// host, all are, which takes no memory; ranks are numbered host by host, so that it is the same
/// schedule.
Topology topology_for(const std::string& algorithm, const Fabric& fabric) {
  const bool looks = looks_at_links(algorithm) || looks_at_hosts(algorithm);
  if (!looks) {
    return {std::vector<Host>(1), std::vector<int>(static_cast<std::size_t>(fabric.ranks()))};
  }
  const int most = looks_at_links(algorithm) ? kMostHosts / 8 : kMostHosts;
  if (fabric.hosts <= most) return fabric.topology();
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("{} hosts: {} can be simulated on up to {}; ring, direct, "
                              "halving_doubling and tree on more",
                              fabric.hosts, algorithm, most));
}

double all_ops(const Schedule& schedule) {
  const int ranks = schedule.ranks;
  if (ranks < 8) return 0;
  double others = 0;
  for (const Rank rank : {ranks / 3, ranks / 2, ranks - 1})
    others += static_cast<double>(schedule.program(rank).ops.size()) / 3;
  return static_cast<double>(schedule.program(0).ops.size()) + others * (ranks - 1);
}

/// What the port of one of a few hosts sends or receives: of all chunks' bytes, the most.
double port_share(const Schedule& schedule, const Fabric& fabric) {
  double most = 0;
  for (const int host : {0, fabric.hosts / 2, fabric.hosts - 1}) {
    double sent = 0, received = 0;
    for (int local = 0; local < fabric.ranks_per_host; ++local) {
      for (const Op& op : schedule.program(host * fabric.ranks_per_host + local).ops) {
        if (!(sends(op) || receives(op)) || fabric.host_of(op.peer) == host) continue;
        (sends(op) ? sent : received) += static_cast<double>(extent(op).count);
      }
    }
    most = std::max({most, sent, received});
  }
  return most / schedule.chunks;
}

/// Share of the rate that all have.
double slowest_port(const Fabric& fabric) {
  double slowest = 1;
  for (const auto& [host, factor] : fabric.port_factor) slowest = std::min(slowest, factor);
  return slowest;
}

/// Seconds that the most loaded port, or link of a rack, is busy beyond those of an equal port,
/// for each byte of all chunks. What goes to one distance after the other (xor: an exchange of
/// doubling distance) waits each time; otherwise the loads add up and overlap.
double extra_load(const HostTraffic& traffic, const Fabric& fabric) {
  const int rack = fabric.rack_hosts, n = fabric.hosts;
  const double slowest = slowest_port(fabric);
  double equal = 0, port = 0, link = 0, in_turn = 0;
  for (int d = 1; d < n; ++d) {
    const double sent = traffic.shares[static_cast<std::size_t>(d)];
    const double own = sent / fabric.port.bytes_per_second;
    // Of a rack's hosts, those whose partner is in another one.
    const int crossing = traffic.rotation ? std::min({d, rack, n - d}) : (d >= rack ? rack : 0);
    const double crossed = fabric.has_racks() ? sent * crossing / fabric.uplink_rate() : 0;
    equal += own;
    port += own / slowest;
    link += crossed;
    in_turn += std::max(own / slowest, crossed);
  }
  return (traffic.rotation ? std::max(port, link) : in_turn) - equal;
}

/// The links of a ring of all ranks, with what processors do to a segment of so many bytes.
std::vector<RingLink> ring_links(const Fabric& fabric, const CostOptions& costs, double segment) {
  const double reducing =
      costs.reduce_bytes_per_second > 0 ? segment / costs.reduce_bytes_per_second : 0;
  std::vector<RingLink> links;
  for (int rank = 0; rank < fabric.ranks(); ++rank) {
    const int from = fabric.host_of(rank), to = fabric.host_of((rank + 1) % fabric.ranks());
    double rate = std::min(fabric.port_rate(from), fabric.port_rate(to));
    if (fabric.has_racks() && fabric.rack_of(from) != fabric.rack_of(to))
      rate = std::min(rate, fabric.uplink_rate());
    const bool inside = from == to;
    const Link& link = inside ? fabric.inside : fabric.port;
    const Duration each = inside ? costs.per_segment_inside : costs.per_segment;
    links.push_back({inside ? link.bytes_per_second : rate,
                     seconds(link.latency) + 2 * seconds(each) + reducing});
  }
  return links;
}

}  // namespace

/// One way to find the time, with what it needs for every size.
class CollectiveSimulation::Method {
 public:
  Method(Schedule schedule, const Fabric& fabric, const CostOptions& costs)
      : schedule_(std::move(schedule)),
        fabric_(fabric),
        alike_(fabric.made_uniform()),
        costs_(costs),
        port_share_(port_share(schedule_, fabric)) {}

  /// Whether it applies; if so, it is taken.
  bool take(SimulationMethod method) {
    method_ = method;
    if (method == SimulationMethod::events) {
      graphs_.push_back(MessageGraph::of_all(schedule_, fabric_));
      return true;
    }
    if (method == SimulationMethod::one_for_all) return fabric_.uniform() && look_at_hosts();
    const auto traffic = host_traffic(schedule_, fabric_);
    if (!traffic) return false;
    if (method == SimulationMethod::ring_path) return traffic->only_neighbours();
    extra_load_ = extra_load(*traffic, fabric_);
    return look_at_hosts();
  }

  SimulatedCollective of(double bytes) const {
    double longest = 0;
    if (method_ == SimulationMethod::ring_path) longest = ring_seconds(bytes);
    const Fabric& fabric = method_ == SimulationMethod::events ? fabric_ : alike_;
    for (const MessageGraph& graph : graphs_)
      longest = std::max(longest, MessageModel(graph, fabric, bytes, costs_).run());
    const double port = port_share_ * bytes / fabric_.port.bytes_per_second;
    if (method_ == SimulationMethod::bound)
      return {longest + extra_load_ * bytes, port + extra_load_ * bytes, method_};
    return {longest, std::min(longest, port / slowest_port(fabric_)), method_};
  }

  double size() const {
    if (method_ == SimulationMethod::ring_path) return schedule_.ranks;
    double ops = 0;
    for (const MessageGraph& graph : graphs_) ops += graph.size();
    return ops;
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  bool look_at_hosts() {
    std::vector<int> hosts{0};
    if (costs_.reduce_bytes_per_second > 0 && fabric_.ranks() <= kManyRanks)
      hosts = {0, fabric_.hosts / 2, fabric_.hosts - 1};
    for (const int host : hosts) {
      auto graph = MessageGraph::of_one(schedule_, alike_, host);
      if (!graph) return false;
      graphs_.push_back(std::move(*graph));
    }
    return true;
  }

  double ring_seconds(double bytes) const {
    const double chunk = bytes / schedule_.chunks;
    const std::size_t segment =
        costs_.segment_bytes > 0 ? costs_.segment_bytes : executor_segment(chunk);
    const double segments = std::clamp(std::ceil(chunk / static_cast<double>(segment)), 1.0,
                                       static_cast<double>(costs_.max_segments));
    const int rounds = schedule_.spec.collective == Collective::all_reduce ? 2 : 1;
    return ring_time(ring_links(fabric_, costs_, chunk / segments), rounds * (schedule_.ranks - 1),
                     chunk, segments);
  }

  Schedule schedule_;
  Fabric fabric_, alike_;
  CostOptions costs_;
  double port_share_ = 0, extra_load_ = 0;
  SimulationMethod method_ = SimulationMethod::events;
  std::vector<MessageGraph> graphs_;
};

CollectiveSimulation::CollectiveSimulation(Collective collective, const std::string& algorithm,
                                           const Fabric& fabric, const CostOptions& costs,
                                           std::optional<SimulationMethod> method)
    : method_(std::make_unique<Method>(
          value_or_throw(make_schedule({collective}, algorithm, topology_for(algorithm, fabric))),
          fabric, costs)) {
  const double ops = method ? 0 : all_ops(method_->schedule());
  std::vector<SimulationMethod> methods{SimulationMethod::one_for_all};
  if (!fabric.uniform()) methods = {SimulationMethod::ring_path, SimulationMethod::bound};
  if (ops <= kMostOps) methods.push_back(SimulationMethod::events);
  if (ops <= kFewOps) methods = {SimulationMethod::events};
  if (method) methods = {*method};
  for (const SimulationMethod one : methods) {
    if (method_->take(one)) return;
  }
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("{} on {} ranks: too many messages to simulate one by one, and "
                              "hosts do not all do the same; take fewer ranks, or ring, direct or "
                              "tree",
                              algorithm, fabric.ranks()));
}

CollectiveSimulation::~CollectiveSimulation() = default;
CollectiveSimulation::CollectiveSimulation(CollectiveSimulation&&) noexcept = default;

SimulatedCollective CollectiveSimulation::of(double bytes) const {
  return method_->of(bytes);
}

double CollectiveSimulation::size() const {
  return method_->size();
}

std::string_view name_of(SimulationMethod method) {
  constexpr std::array<std::string_view, 4> names{"events", "one for all", "ring path", "bound"};
  return names[static_cast<std::size_t>(method)];
}

SimulatedCollective simulate_collective(Collective collective, const std::string& algorithm,
                                        const Fabric& fabric, double bytes,
                                        const CostOptions& costs,
                                        std::optional<SimulationMethod> method) {
  if (fabric.ranks() == 1) return {};
  return CollectiveSimulation(collective, algorithm, fabric, costs, method).of(bytes);
}

}  // namespace gradwire
