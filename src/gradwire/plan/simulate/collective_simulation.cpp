#include "gradwire/plan/simulate/collective_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire::plan {
namespace {

/// Up to this many ops of all ranks, all are simulated, even if one host could represent all.
constexpr double kFewOps = 20'000;
/// Up to this many ops, one host is preferred to fewer hosts.
constexpr double kManyOps = 100'000;
/// Maximum number of ops that are simulated: about a second.
constexpr double kMaxOps = 1.5e6;
/// Above this many ranks, one host has more ops than that if it sends to all others.
constexpr int kManyRanks = 20'000;
/// Maximum hosts for algorithms that inspect links.
constexpr int kMaxPairedHosts = 256;
/// fewer_hosts simulates 32 and 64 hosts, or twice that for recursive halving, whose levels become
/// shorter, and for racks; fewer, if the smaller number would have more ranks than this.
constexpr int kHosts = 32, kDeepRanks = 512, kRanks = 64;

bool looks_at_links(std::string_view algorithm) {
  return algorithm == "uneven" || algorithm == "spanning_trees";
}

bool looks_at_hosts(std::string_view algorithm) {
  return looks_at_links(algorithm) || algorithm == "hierarchical" || algorithm == "leaders" ||
         algorithm == "host_tree";
}

/// Returns true if the depth of the schedule grows by one level when the hosts double.
bool is_deep(std::string_view algorithm) {
  constexpr std::array<std::string_view, 9> deep{
      "tree",         "host_tree",          "double_tree",      "binomial",
      "bruck",        "recursive_doubling", "halving_doubling", "recursive_halving",
      "dissemination"};
  return std::ranges::find(deep, algorithm) != deep.end();
}

bool is_halving(std::string_view algorithm) {
  return algorithm == "halving_doubling" || algorithm == "recursive_halving";
}

/// With equal links, shares are equal, too; direct needs no table of all pairs of hosts.
std::string same_as(const std::string& algorithm, const Fabric& fabric) {
  const bool is_direct = algorithm == "uneven" && fabric.hosts > kMaxPairedHosts &&
                         fabric.ranks_per_host == 1 && fabric.equal_ports();
  return is_direct && !fabric.limited_racks() ? "direct" : algorithm;
}

void check_hosts(const std::string& algorithm, const Fabric& fabric) {
  if (!looks_at_links(algorithm) || fabric.hosts <= kMaxPairedHosts) return;
  refuse(
      "{} hosts: {} can be simulated on at most {}, as it tries shares or trees on "
      "each link; use ring, direct, halving_doubling or tree on more",
      fabric.hosts, algorithm, kMaxPairedHosts);
}

double ops_of_one(const schedule::Schedule& schedule, const Fabric& fabric) {
  return static_cast<double>(fabric.ranks_per_host) *
         static_cast<double>(schedule.program(0).ops.size());
}

double ops_of_all(const schedule::Schedule& schedule) {
  const int ranks = schedule.ranks;
  if (ranks < 8) return 0;
  double others = 0;
  for (const Rank rank : {ranks / 3, ranks / 2, ranks - 1})
    others += static_cast<double>(schedule.program(rank).ops.size()) / 3;
  return static_cast<double>(schedule.program(0).ops.size()) + others * (ranks - 1);
}

/// Returns the fewest hosts of a rack whose uplink is as fast as a port, which carries a ring.
int min_rack_hosts(const Fabric& fabric) {
  return std::min(
      {fabric.rack_hosts, static_cast<int>(std::ceil(fabric.oversubscription)), kHosts});
}

/// Returns the smallest number of hosts that fewer_hosts simulates; the next one is twice that.
int few_hosts(const std::string& algorithm, const Fabric& fabric) {
  const int ranks = is_deep(algorithm) ? kDeepRanks : kRanks;
  int hosts = is_halving(algorithm) || fabric.limited_racks() ? 2 * kHosts : kHosts;
  const int min_hosts = fabric.limited_racks() ? 2 * min_rack_hosts(fabric) : 2;
  while (hosts > min_hosts && hosts * fabric.ranks_per_host > ranks) hosts /= 2;
  return hosts;
}

/// Returns a number of hosts, 2 `few` to 4 `few`, with a tree or butterfly of the same shape. The
/// leading binary digits shape trees. In recursive halving they are the last ones: an odd group has
/// a rank without a counterpart, which costs the more the earlier it is.
int hosts_of_same_shape(const std::string& algorithm, int hosts, int few) {
  if (is_halving(algorithm)) return 2 * few + hosts % (2 * few);
  while (hosts >= 4 * few) hosts /= 2;
  return hosts;
}

/// Returns the hosts of a rack where `hosts` hosts represent the fabric. Racks keep their size if
/// the smallest fabric has two of them. Otherwise, and for trees, whose messages cross racks in
/// proportion to their size, there are up to eight.
int fewer_in_rack(const std::string& algorithm, const Fabric& fabric, int hosts) {
  const int few = few_hosts(algorithm, fabric);
  if (!is_deep(algorithm) && 2 * fabric.rack_hosts <= few) return fabric.rack_hosts;
  const double share = std::max(1.0 / 8, static_cast<double>(fabric.rack_hosts) / fabric.hosts);
  return std::clamp(static_cast<int>(share * hosts), min_rack_hosts(fabric), fabric.rack_hosts);
}

bool has_fewer_hosts(const std::string& algorithm, const Fabric& fabric) {
  return fabric.hosts >= 4 * few_hosts(algorithm, fabric);
}

}  // namespace

CollectiveSimulation::CollectiveSimulation(schedule::Collective collective,
                                           const std::string& algorithm, const Fabric& fabric,
                                           const schedule::CostOptions& costs,
                                           std::optional<SimulationMethod> method)
    : collective_(collective),
      algorithm_(same_as(algorithm, fabric)),
      fabric_(fabric),
      costs_(costs) {
  check_hosts(algorithm_, fabric);
  if (method ? simulate_by(*method) : simulate_some()) return;
  refuse(
      "{} on {} ranks: {:.3g} messages and steps are too many to simulate "
      "one by one (at most {:.3g}), and hosts do not all do the same; use "
      "fewer ranks, or ring, direct or tree",
      algorithm, fabric.ranks(), ops_of_all(schedule_of(fabric_)), kMaxOps);
}

/// Selects the most exact method that is fast. Returns false if none is.
bool CollectiveSimulation::simulate_some() {
  const bool fewer = has_fewer_hosts(algorithm_, fabric_);
  // Their schedules need a table of all pairs of hosts, or many ops.
  if (looks_at_hosts(algorithm_) && fabric_.hosts > kMaxPairedHosts) return simulate_fewer();
  if (fewer && !is_deep(algorithm_) && fabric_.ranks() > kManyRanks) return simulate_fewer();
  const schedule::Schedule schedule = schedule_of(fabric_);
  const double all = ops_of_all(schedule), one = ops_of_one(schedule, fabric_);
  if (all <= kFewOps && !(fewer && is_deep(algorithm_))) return simulate_all(schedule);
  if (one <= (fewer ? kManyOps : kMaxOps) && simulate_one(schedule)) return true;
  return fewer ? simulate_fewer() : all <= kMaxOps && simulate_all(schedule);
}

bool CollectiveSimulation::simulate_by(SimulationMethod method) {
  if (method == SimulationMethod::fewer_hosts) return simulate_fewer();
  const schedule::Schedule schedule = schedule_of(fabric_);
  return method == SimulationMethod::events ? simulate_all(schedule) : simulate_one(schedule);
}

bool CollectiveSimulation::simulate_all(const schedule::Schedule& schedule) {
  method_ = SimulationMethod::events;
  simulated_.push_back(SimulatedRanks::of_all(schedule, fabric_));
  return true;
}

bool CollectiveSimulation::simulate_one(const schedule::Schedule& schedule) {
  method_ = SimulationMethod::one_for_all;
  auto one = SimulatedRanks::of_one(schedule, fabric_);
  if (one) simulated_.push_back(std::move(*one));
  return one.has_value();
}

bool CollectiveSimulation::simulate_fewer() {
  method_ = SimulationMethod::fewer_hosts;
  if (!has_fewer_hosts(algorithm_, fabric_)) return false;
  const int few = few_hosts(algorithm_, fabric_);
  std::vector<int> hosts{few, 2 * few};
  if (is_deep(algorithm_)) hosts.push_back(hosts_of_same_shape(algorithm_, fabric_.hosts, few));
  for (const int some : hosts)
    simulated_.push_back(
        all_or_one(fabric_.with_hosts(some, fewer_in_rack(algorithm_, fabric_, some))));
  // All of them have the same number of segments of a message.
  std::size_t max_ops = 1;
  for (const SimulatedRanks& some : simulated_) max_ops = std::max(max_ops, some.ops());
  costs_.max_segments = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(costs_.max_tasks / (max_ops + 1), 1, costs_.max_segments));
  const double base = hosts.back();
  growth_ = is_deep(algorithm_) ? std::log2(fabric_.hosts / base) : (fabric_.hosts - base) / few;
  return true;
}

/// If the algorithm ignores hosts, all ranks are on one host, which takes no memory. Ranks are
/// numbered host by host, so the schedule is the same.
schedule::Schedule CollectiveSimulation::schedule_of(const Fabric& fabric) const {
  const auto ranks = static_cast<std::size_t>(fabric.ranks());
  const topology::Topology topology =
      looks_at_hosts(algorithm_)
          ? fabric.topology()
          : topology::Topology(std::vector<topology::Host>(1), std::vector<int>(ranks));
  return value_or_throw(schedule::make_schedule({collective_}, algorithm_, topology));
}

/// Simulates all ranks if they are few, or else one host if it can represent all.
SimulatedRanks CollectiveSimulation::all_or_one(const Fabric& fabric) const {
  const schedule::Schedule schedule = schedule_of(fabric);
  if (ops_of_all(schedule) > kManyOps) {
    if (auto one = SimulatedRanks::of_one(schedule, fabric)) return std::move(*one);
  }
  return SimulatedRanks::of_all(schedule, fabric);
}

/// Where ranks have a part of the data, the size of a part is the same on fewer hosts.
double CollectiveSimulation::bytes_of(const SimulatedRanks& some, double bytes) const {
  const bool parts = simulated_.front().chunks() != simulated_.back().chunks();
  if (is_deep(algorithm_) || !parts) return bytes;
  return bytes * some.fabric().hosts / fabric_.hosts;
}

double CollectiveSimulation::grown(double few, double more, double base) const {
  return base + growth_ * std::max(0.0, more - few);
}

SimulatedCollective CollectiveSimulation::of(double bytes) const {
  const auto time = [&](const SimulatedRanks& some) {
    return some.time(bytes_of(some, bytes), costs_);
  };
  const OperationTime few = time(simulated_.front());
  if (simulated_.size() == 1) return {few, method_};
  const OperationTime more = time(simulated_[1]);
  const OperationTime base = simulated_.size() > 2 ? time(simulated_[2]) : more;
  const auto all = [&](double OperationTime::*of) { return grown(few.*of, more.*of, base.*of); };
  return {{all(&OperationTime::seconds),
           all(&OperationTime::port_seconds),
           {},
           all(&OperationTime::port_bytes)},
          method_};
}

double CollectiveSimulation::min_seconds(double bytes) const {
  const auto seconds = [&](const SimulatedRanks& some) {
    return bytes_of(some, bytes) * some.min_seconds();
  };
  if (simulated_.size() == 1) return seconds(simulated_.front());
  return grown(seconds(simulated_[0]), seconds(simulated_[1]), seconds(simulated_.back()));
}

SimulatedCollective simulate_collective(schedule::Collective collective,
                                        const std::string& algorithm, const Fabric& fabric,
                                        double bytes, const schedule::CostOptions& costs,
                                        std::optional<SimulationMethod> method) {
  if (fabric.ranks() == 1) return {};
  return CollectiveSimulation(collective, algorithm, fabric, costs, method).of(bytes);
}

}  // namespace gradwire::plan
