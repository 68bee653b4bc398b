#include "gradwire/plan/simulate/operation_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/plan/simulate/collective_simulation.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire::plan {
namespace {

bool has_algorithm(schedule::Collective collective, std::string_view algorithm) {
  const auto names = schedule::algorithm_names(collective);
  return std::ranges::find(names, algorithm) != names.end();
}

void check_algorithm(const std::string& algorithm) {
  if (algorithm == "auto") return;
  std::vector<std::string_view> known{"auto"};
  for (const schedule::Collective collective : schedule::all_collectives()) {
    if (has_algorithm(collective, algorithm)) return;
    for (const std::string_view name : schedule::algorithm_names(collective)) {
      if (std::ranges::find(known, name) == known.end()) known.push_back(name);
    }
  }
  refuse(unknown_name("algorithm", algorithm, known));
}

/// Caches results, as steps ask for the same sizes repeatedly.
class Remembered {
 public:
  using Key = std::pair<schedule::Collective, double>;

  template <class Compute>
  OperationTime get(schedule::Collective collective, double bytes, Compute compute) {
    const auto [at, is_new] = known_.try_emplace(Key{collective, bytes});
    if (is_new) at->second = compute();
    return at->second;
  }

 private:
  std::map<Key, OperationTime> known_;
};

class MeasuredTimes {
 public:
  MeasuredTimes(const topology::JobTopology& job, std::string algorithm)
      : topology_(job.topology),
        algorithm_(std::move(algorithm)),
        tuner_(topology_, schedule::kMaxSegmentBytes, job.choices) {
    check_algorithm(algorithm_);
  }

  OperationTime operator()(schedule::Collective collective, double bytes) {
    if (topology_.ranks() == 1) return {};
    return known_.get(collective, bytes, [&] { return compute(collective, bytes); });
  }

 private:
  OperationTime compute(schedule::Collective collective, double bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    const std::string name =
        has_algorithm(collective, algorithm_) ? algorithm_ : tuner_.choose({collective}, size);
    const schedule::ScheduleCost& cost = cost_of(collective, name);
    const schedule::Estimate estimate =
        cost.estimate(topology_, size,
                      schedule::executor_costs(schedule::kMaxSegmentBytes,
                                               tuner_.segments(collective, size, name)));
    const schedule::Counts counts =
        cost.count(schedule::ChunkLayout(cost.programs().schedule().chunks, size, 1));
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    return {seconds(estimate.total), seconds(estimate.busiest_port), name,
            static_cast<double>(std::ranges::max(counts.bytes_sent))};
  }

  const schedule::ScheduleCost& cost_of(schedule::Collective collective, const std::string& name) {
    std::unique_ptr<schedule::ScheduleCost>& cost = costs_[{collective, name}];
    if (!cost)
      cost = std::make_unique<schedule::ScheduleCost>(
          value_or_throw(schedule::make_schedule({collective}, name, topology_)));
    return *cost;
  }

  topology::Topology topology_;
  std::string algorithm_;
  Tuner tuner_;
  Remembered known_;
  std::map<std::pair<schedule::Collective, std::string>, std::unique_ptr<schedule::ScheduleCost>>
      costs_;
};

/// The algorithms among which "auto" chooses, if the collective has them.
constexpr std::array<std::string_view, 8> kCandidates{"ring",
                                                      "halving_doubling",
                                                      "recursive_halving",
                                                      "double_tree",
                                                      "recursive_doubling",
                                                      "tree",
                                                      "direct",
                                                      "star"};

/// Above this many ranks, times between powers of four are interpolated.
constexpr int kManyRanks = 256;

class FabricTimes {
 public:
  FabricTimes(Fabric fabric, std::string algorithm, const schedule::CostOptions& costs)
      : fabric_(std::move(fabric)), algorithm_(std::move(algorithm)), costs_(costs) {
    check_algorithm(algorithm_);
  }

  OperationTime operator()(schedule::Collective collective, double bytes) {
    if (fabric_.ranks() == 1) return {};
    if (fabric_.ranks() <= kManyRanks) return exact(collective, bytes);
    // Times are maxima of sums of latencies and of byte times, so convex: a chord is above them,
    // and close to them between powers of four.
    const double low = std::pow(4, std::floor(std::log2(std::max(bytes, 1.0)) / 2));
    const OperationTime below = exact(collective, low), above = exact(collective, 4 * low);
    const double part = (bytes - low) / (3 * low);
    const auto between = [&](double a, double b) { return a + part * (b - a); };
    return {between(below.seconds, above.seconds), between(below.port_seconds, above.port_seconds),
            part < 0.5 ? below.algorithm : above.algorithm,
            between(below.port_bytes, above.port_bytes)};
  }

 private:
  OperationTime exact(schedule::Collective collective, double bytes) {
    return known_.get(collective, bytes, [&] { return fastest(collective, bytes); });
  }

  /// In the order in which they are tried.
  using Simulations = std::vector<std::pair<std::string, CollectiveSimulation>>;

  const Simulations& simulations(schedule::Collective collective) {
    const auto [at, is_new] = simulations_.try_emplace(collective);
    if (!is_new) return at->second;
    for (const std::string& name : candidates(collective))
      at->second.emplace_back(name, CollectiveSimulation(collective, name, fabric_, costs_));
    return at->second;
  }

  std::vector<std::string> candidates(schedule::Collective collective) const {
    if (has_algorithm(collective, algorithm_)) return {algorithm_};
    std::vector<std::string> some;
    for (const std::string_view name : kCandidates) {
      if (has_algorithm(collective, name)) some.emplace_back(name);
    }
    if (some.empty()) some.emplace_back(schedule::algorithm_names(collective).front());
    return some;
  }

  /// Does not simulate an algorithm whose port alone takes longer than the best one.
  OperationTime fastest(schedule::Collective collective, double bytes) {
    OperationTime best;
    for (const auto& [name, simulation] : simulations(collective)) {
      if (!best.algorithm.empty() && simulation.min_seconds(bytes) >= best.seconds) continue;
      const OperationTime one = simulation.of(bytes);
      if (best.algorithm.empty() || one.seconds < best.seconds)
        best = {one.seconds, one.port_seconds, name, one.port_bytes};
    }
    return best;
  }

  Fabric fabric_;
  std::string algorithm_;
  schedule::CostOptions costs_;
  Remembered known_;
  std::map<schedule::Collective, Simulations> simulations_;
};

}  // namespace

std::vector<std::string_view> planned_algorithms() {
  std::vector<std::string_view> names{"auto"};
  for (const std::string_view name : kCandidates) {
    if (has_algorithm(schedule::Collective::all_reduce, name)) names.push_back(name);
  }
  return names;
}

OperationTimes measured_times(const topology::JobTopology& job, const std::string& algorithm) {
  return [times = std::make_shared<MeasuredTimes>(job, algorithm)](
             schedule::Collective collective, double bytes) { return (*times)(collective, bytes); };
}

schedule::CostOptions fabric_costs() {
  schedule::CostOptions costs = schedule::executor_costs();
  costs.max_tasks = std::size_t{1} << 17;
  return costs;
}

OperationTimes fabric_times(const Fabric& fabric, const std::string& algorithm,
                            const schedule::CostOptions& costs) {
  return [times = std::make_shared<FabricTimes>(fabric, algorithm, costs)](
             schedule::Collective collective, double bytes) { return (*times)(collective, bytes); };
}

}  // namespace gradwire::plan
