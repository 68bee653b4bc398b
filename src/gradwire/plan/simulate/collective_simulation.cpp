#include "gradwire/plan/simulate/collective_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/engine/outbox.h"
#include "gradwire/plan/simulate/levels.h"
#include "gradwire/plan/simulate/link_load.h"
#include "gradwire/plan/simulate/ring_path.h"
#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

/// Up to this many ops of all ranks, all are simulated, even if one host could represent all.
constexpr double kFewOps = 20'000;
/// Maximum number of ops that are simulated: about a second.
constexpr double kMaxOps = 1.5e6;
/// Above this many ops on one host of several ranks, rings use the closed form.
constexpr double kMaxOpsOfOneHost = 1e5;
/// Maximum hosts for algorithms that inspect hosts, and for those that inspect their links.
constexpr int kMaxHosts = 2048, kMaxPairedHosts = 256;
/// Maximum number of segments simulated separately.
constexpr std::size_t kMaxTasks = 1 << 17;
/// Up to this many ranks several hosts are simulated, as they reduce in different orders.
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

/// With equal links and one rank per host, an algorithm that inspects links or hosts sends the same
/// messages as one that does not. Returns the latter, which needs no table of all pairs of hosts.
std::string same_as(const std::string& algorithm, const Fabric& fabric) {
  if (fabric.hosts <= kMaxPairedHosts || !fabric.uniform() || fabric.ranks_per_host > 1)
    return algorithm;
  if (algorithm == "uneven" || algorithm == "hierarchical") return "direct";
  if (algorithm == "leaders") return "exchange";
  return algorithm == "host_tree" ? "tree" : algorithm;
}

/// Returns the ops of one host; 0 if it has one rank.
double ops_of_one_host(const Schedule& schedule, const Fabric& fabric) {
  if (fabric.ranks_per_host == 1) return 0;
  return static_cast<double>(fabric.ranks_per_host * schedule.program(0).ops.size());
}

bool sends_to_one(const Program& program) {
  const auto first = std::ranges::find_if(program.ops, sends);
  return std::ranges::all_of(program.ops,
                             [&](const Op& op) { return !sends(op) || op.peer == first->peer; });
}

/// Returns the topology from which an algorithm makes its schedule. If the algorithm ignores hosts,
/// all ranks are on one host, which takes no memory. Ranks are numbered host by host, so the
/// schedule is the same.
Topology topology_for(const std::string& algorithm, const Fabric& fabric) {
  const bool links = looks_at_links(algorithm), hosts = looks_at_hosts(algorithm);
  if (!links && !hosts)
    return {std::vector<Host>(1), std::vector<int>(static_cast<std::size_t>(fabric.ranks()))};
  const int most = links ? kMaxPairedHosts : kMaxHosts;
  if (fabric.hosts <= most) return fabric.topology();
  throw Exception(
      ErrorKind::invalid_argument,
      fmt::format("{} hosts: {} can be simulated on at most {}, as it {}; use ring, direct, "
                  "halving_doubling or tree on more",
                  fabric.hosts, algorithm, most,
                  links ? "tries shares or trees on each link" : "keeps a table of all pairs"));
}

Schedule schedule_of(Collective collective, const std::string& algorithm, const Fabric& fabric) {
  return value_or_throw(make_schedule({collective}, algorithm, topology_for(algorithm, fabric)));
}

double all_ops(const Schedule& schedule) {
  const int ranks = schedule.ranks;
  if (ranks < 8) return 0;
  double others = 0;
  for (const Rank rank : {ranks / 3, ranks / 2, ranks - 1})
    others += static_cast<double>(schedule.program(rank).ops.size()) / 3;
  return static_cast<double>(schedule.program(0).ops.size()) + others * (ranks - 1);
}

/// Returns the links of a ring of all ranks, including the processor time of a segment of `segment`
/// bytes.
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

/// A simulation method, with its state for all sizes.
class CollectiveSimulation::Method {
 public:
  Method(Collective collective, const std::string& algorithm, const Fabric& fabric,
         const CostOptions& costs)
      : schedule_(schedule_of(collective, algorithm, fabric)),
        algorithm_(algorithm),
        fabric_(fabric),
        alike_(fabric.made_uniform()),
        costs_(costs),
        port_share_(port_share(schedule_, fabric)) {
    costs_.max_tasks = kMaxTasks;
  }

  /// Selects `method`; returns false if it does not apply.
  bool take(SimulationMethod method) {
    method_ = method;
    if (method == SimulationMethod::events) {
      simulated_.push_back(SimulatedRanks::of_all(schedule_, fabric_));
      return true;
    }
    if (method == SimulationMethod::one_for_all) return fabric_.uniform() && look_at_hosts();
    if (method == SimulationMethod::levels) return fabric_.uniform() && look_at_levels();
    const auto traffic = host_traffic(schedule_, fabric_);
    if (method == SimulationMethod::ring_path) return traffic && traffic->neighbors_only();
    extra_load_ = traffic ? extra_load(*traffic, fabric_) : extra_load(schedule_, fabric_);
    return traffic ? look_at_hosts() : look_at_levels();
  }

  SimulatedCollective of(double bytes) const {
    double longest = 0;
    if (method_ == SimulationMethod::ring_path) longest = ring_seconds(bytes);
    if (levels_) longest = levels_->seconds(bytes, costs_);
    const Fabric& fabric = method_ == SimulationMethod::events ? fabric_ : alike_;
    for (const SimulatedRanks& ranks : simulated_)
      longest = std::max(longest, ranks.seconds(fabric, bytes, costs_));
    const double port = port_share_ * bytes / fabric_.port.bytes_per_second;
    if (method_ == SimulationMethod::bound)
      return {longest + extra_load_ * bytes, port + extra_load_ * bytes, method_};
    return {longest, std::min(longest, port / slowest_port(fabric_)), method_};
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  bool look_at_levels() {
    if (!Levels::apply_to(algorithm_, alike_)) return false;
    levels_.emplace(schedule_.spec.collective, algorithm_, alike_);
    return true;
  }

  bool look_at_hosts() {
    std::vector<int> hosts{0};
    if (costs_.reduce_bytes_per_second > 0 && fabric_.ranks() <= kManyRanks)
      hosts = {0, fabric_.hosts / 2, fabric_.hosts - 1};
    for (const int host : hosts) {
      auto one = SimulatedRanks::of_one(schedule_, alike_, host);
      if (!one) return false;
      simulated_.push_back(std::move(*one));
    }
    return true;
  }

  double ring_seconds(double bytes) const {
    const double chunk = bytes / schedule_.chunks;
    const std::size_t segment =
        costs_.segment_bytes > 0
            ? costs_.segment_bytes
            : segment_of(static_cast<std::size_t>(chunk), OutboxLimits{}.segment_bytes);
    const double segments = std::clamp(std::ceil(chunk / static_cast<double>(segment)), 1.0,
                                       static_cast<double>(costs_.max_segments));
    const int rounds = schedule_.spec.collective == Collective::all_reduce ? 2 : 1;
    return ring_time(ring_links(fabric_, costs_, chunk / segments), rounds * (schedule_.ranks - 1),
                     chunk, segments);
  }

  Schedule schedule_;
  std::string algorithm_;
  Fabric fabric_, alike_;
  CostOptions costs_;
  double port_share_ = 0, extra_load_ = 0;
  SimulationMethod method_ = SimulationMethod::events;
  std::vector<SimulatedRanks> simulated_;
  std::optional<Levels> levels_;
};

CollectiveSimulation::CollectiveSimulation(Collective collective, const std::string& algorithm,
                                           const Fabric& fabric, const CostOptions& costs,
                                           std::optional<SimulationMethod> method)
    : method_(std::make_unique<Method>(collective, same_as(algorithm, fabric), fabric, costs)) {
  const double ops = method ? 0 : all_ops(method_->schedule());
  std::vector<SimulationMethod> methods{SimulationMethod::one_for_all, SimulationMethod::levels};
  if (ops_of_one_host(method_->schedule(), fabric) > kMaxOpsOfOneHost)
    methods.insert(methods.begin(), SimulationMethod::ring_path);
  if (!fabric.uniform()) methods = {SimulationMethod::ring_path, SimulationMethod::bound};
  if (ops <= kMaxOps) methods.push_back(SimulationMethod::events);
  if (ops <= kFewOps && !Levels::apply_to(algorithm, fabric)) methods = {SimulationMethod::events};
  if (method) methods = {*method};
  for (const SimulationMethod one : methods) {
    if (method_->take(one)) return;
  }
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("{} on {} ranks: {:.3g} messages and steps are too many to simulate "
                              "one by one (at most {:.3g}), and hosts do not all do the same; use "
                              "fewer ranks, or ring, direct or tree",
                              algorithm, fabric.ranks(), ops, kMaxOps));
}

CollectiveSimulation::~CollectiveSimulation() = default;
CollectiveSimulation::CollectiveSimulation(CollectiveSimulation&&) noexcept = default;

SimulatedCollective CollectiveSimulation::of(double bytes) const {
  return method_->of(bytes);
}

bool CollectiveSimulation::is_expensive(Collective collective, const std::string& algorithm,
                                        const Fabric& fabric, double max_ops) {
  if (Levels::apply_to(algorithm, fabric)) return false;
  const Schedule schedule = schedule_of(collective, same_as(algorithm, fabric), fabric);
  const Program program = schedule.program(0);
  // A ring then uses the closed form.
  if (static_cast<double>(program.ops.size()) * fabric.ranks_per_host > max_ops)
    return !sends_to_one(program);
  return all_ops(schedule) > max_ops && !host_traffic(schedule, fabric);
}

std::string_view name_of(SimulationMethod method) {
  constexpr std::array<std::string_view, 5> names{"events", "one for all", "levels", "ring path",
                                                  "bound"};
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
