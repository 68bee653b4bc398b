#include "gradwire/plan/place/placed_hosts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/plan/search.h"

namespace gradwire::plan {
namespace {

/// Steps that are simulated: the mean of the second half counts.
constexpr int kSteps = 4;
/// A schedule and its cut depend on each other: number of cuts that are tried for a schedule.
constexpr int kCuts = 4;

/// Schedules that may be fastest, the usual ones first, then those that keep fewer micro-batches.
std::vector<std::string> usual_schedules(int stages) {
  std::vector<std::string> names{"1f1b", "zero_bubble", "zero_bubble_h1", "auto"};
  for (const int kept : {stages, stages / 2, 2, 1}) {
    if (kept < 1) continue;
    for (const char* name : {"auto", "zero_bubble", "1f1b"})
      names.push_back(fmt::format("{}:{}", name, kept));
  }
  return names;
}

/// The global batch in one pass of one device.
PlanInput on_one_device(const PlanInput& input) {
  PlanInput own = input;
  Strategy& s = own.strategy;
  const double batch = s.global_batch();
  const double work = batch / s.batch * s.tensor * s.pipeline;
  own.measured.step *= work;
  own.model.recorded_seconds *= work;
  s.nodes = s.devices_per_node = s.accumulate = s.tensor = s.pipeline = s.micro_batches = 1;
  s.zero_stage = 0;
  s.batch = batch;
  return own;
}

/// Finds the fastest pipeline.
class HostSearch {
 public:
  HostSearch(const PlanInput& input, const HostLinks& links)
      : input_(input), links_(links), whole_(on_one_device(input)), time_(step_time(whole_)) {
    whole_.model = with_blocks(std::move(whole_.model));
  }

  std::optional<PlacedHosts> run(const std::vector<std::string>& schedules) {
    const auto hosts = static_cast<int>(links_.hosts.size());
    const bool exact = links_.hosts.size() <= kExactHosts;
    for (int stages = hosts; stages >= (exact ? 2 : hosts); --stages) {
      if (stages > static_cast<int>(whole_.model.layers.size())) continue;
      for (const int micro_batches : numbers_of_micro_batches(stages))
        consider(stages, micro_batches, schedules);
    }
    return std::move(best_);
  }

 private:
  std::vector<int> numbers_of_micro_batches(int stages) const {
    if (input_.strategy.micro_batches > 1) return {input_.strategy.micro_batches};
    // Micro-batches have equal numbers of samples.
    std::vector<int> numbers;
    for (const int times : {4, 2, 1}) {
      int number = times * stages;
      while (number > 1 && std::fmod(whole_.strategy.batch, number) != 0) --number;
      if (numbers.empty() || numbers.back() != number) numbers.push_back(number);
    }
    return numbers;
  }

  HostProblem problem_of(int stages, int micro_batches) const {
    const Strategy& s = whole_.strategy;
    const BytesPerParameter bytes = bytes_per_parameter(s.compute, s.optimizer);
    HostProblem problem{.layers = {},
                        .hosts = links_.hosts,
                        .bytes_per_second = links_.bytes_per_second,
                        .stages = stages,
                        .micro_batches = micro_batches,
                        .states_per_weight = (bytes.gradient + bytes.optimizer) / bytes.parameter};
    const double pass = (time_.phases.forward + time_.phases.backward) / micro_batches;
    const double samples = s.batch / micro_batches;
    double inputs = 0;
    for (const ModelLayer& layer : whole_.model.layers) {
      const double kept = s.recompute ? std::min(inputs, layer.kept) : layer.kept;
      problem.layers.push_back(
          {.seconds = pass * (layer.forward + layer.backward),
           .output_bytes = layer.crossing() * samples * bytes_of(s.compute),
           .weight_bytes = static_cast<double>(layer.parameters) * bytes.parameter,
           .kept_bytes = kept * samples * bytes_of(s.compute)});
      inputs = layer.outputs;
    }
    problem.kept.assign(static_cast<std::size_t>(stages), 1);
    for (PlacementHost& host : problem.hosts) {
      if (host.memory_bytes <= 0) continue;
      host.memory_bytes = std::max(1.0, host.memory_bytes - recomputed_bytes(micro_batches));
    }
    return problem;
  }

  /// Activations of the layer that is being recomputed.
  double recomputed_bytes(int micro_batches) const {
    const Strategy& s = whole_.strategy;
    double largest = 0;
    for (const ModelLayer& layer : whole_.model.layers) largest = std::max(largest, layer.kept);
    return s.recompute ? largest * s.batch / micro_batches * bytes_of(s.compute) : 0;
  }

  void consider(int stages, int micro_batches, const std::vector<std::string>& schedules) {
    HostProblem problem = problem_of(stages, micro_batches);
    const auto roomy = place_on_hosts(problem);  // Assumes the minimum memory of a schedule.
    if (!roomy || (best_ && micro_batches * roomy->bottleneck >= best_->step)) return;
    const auto balanced = with_equal_stages(problem, *roomy);
    for (const std::string& schedule : schedules.empty() ? usual_schedules(stages) : schedules) {
      problem.kept.assign(static_cast<std::size_t>(stages), 1);
      consider_schedule(problem, *roomy, schedule);
      if (balanced) consider_schedule(problem, *balanced, schedule);
    }
  }

  /// The same hosts with stages as equal in time as they can be: where the network limits, T is the
  /// same for many cuts.
  static std::optional<HostPlacement> with_equal_stages(const HostProblem& problem,
                                                        const HostPlacement& placement) {
    HostProblem computing = problem;
    for (PipelineLayer& layer : computing.layers) layer.output_bytes = 0;
    auto equal = cut_for(computing, placement.hosts);
    if (!equal || equal->cut == placement.cut) return std::nullopt;
    return placement_of(problem, placement.hosts, std::move(equal->cut));
  }

  /// A schedule is made for the times of a cut, and says what memory the cut must leave.
  void consider_schedule(HostProblem problem, HostPlacement placement, const std::string& name) {
    for (int i = 0; i < kCuts; ++i) {
      PlacedHosts placed = placed_with(problem, placement, name);
      const std::vector<int> kept = kept_by_rank(placed.schedule);
      bool fits = true;
      for (std::size_t stage = 0; stage < kept.size(); ++stage) {
        const double memory = placed.hosts[stage].memory_bytes;
        fits = fits && (memory <= 0 || placed.memory_bytes[stage] <= memory);
      }
      if (fits) return take_if_better(problem, std::move(placed));
      problem.kept = kept;
      auto next = place_on_hosts(problem);
      if (!next) return;
      placement = std::move(*next);
    }
  }

  PlacedHosts placed_with(const HostProblem& problem, const HostPlacement& placement,
                          const std::string& name) const {
    PlacedHosts placed{.input = whole_,
                       .hosts = {},
                       .unused = {},
                       .cut = placement.cut,
                       .costs = costs_of(problem, placement)};
    for (const int host : placement.hosts)
      placed.hosts.push_back(links_.hosts[static_cast<std::size_t>(host)]);
    for (std::size_t i = 0; i < links_.hosts.size(); ++i) {
      if (std::ranges::count(placement.hosts, static_cast<int>(i)) == 0)
        placed.unused.push_back(links_.hosts[i].name);
    }
    placed.schedule = value_or_throw(pipeline::make_pipeline(
        name,
        {.ranks = problem.stages, .micro_batches = problem.micro_batches, .costs = placed.costs}));
    if (placed.schedule.stages() != problem.stages || !placed.schedule.trains) {
      refuse("schedule {}: a host has one stage; use 1f1b, zero_bubble, auto, ...", name);
    }
    HostProblem own = problem;
    own.kept = kept_by_rank(placed.schedule);
    std::size_t begin = 0;
    for (int stage = 0; stage < problem.stages; ++stage) {
      const std::size_t end = begin + placed.cut[static_cast<std::size_t>(stage)];
      placed.memory_bytes.push_back(stage_bytes(own, stage, begin, end) +
                                    recomputed_bytes(problem.micro_batches));
      begin = end;
    }
    Strategy& s = placed.input.strategy;
    s.nodes = s.pipeline = problem.stages;
    s.micro_batches = problem.micro_batches;
    s.schedule = name;
    placed.step = simulate(placed.schedule, placed.costs, kSteps).step_seconds +
                  update_seconds(problem, placement);
    placed.samples_per_second = s.batch / placed.step;
    return placed;
  }

  /// The update time of the slowest host.
  double update_seconds(const HostProblem& problem, const HostPlacement& placement) const {
    const auto parameters = static_cast<double>(whole_.model.parameters());
    double slowest = 0;
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < placement.cut.size(); ++stage) {
      double own = 0;
      for (const std::size_t end = layer + placement.cut[stage]; layer < end; ++layer)
        own += static_cast<double>(whole_.model.layers[layer].parameters);
      const auto host = static_cast<std::size_t>(placement.hosts[stage]);
      slowest = std::max(slowest, own / problem.hosts[host].speed);
    }
    return time_.phases.update * slowest / parameters;
  }

  pipeline::PipelineCosts costs_of(const HostProblem& problem,
                                   const HostPlacement& placement) const {
    pipeline::PipelineCosts costs{.latency = configured_seconds(links_.latency)};
    const double pass = (time_.phases.forward + time_.phases.backward) / problem.micro_batches;
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < placement.cut.size(); ++stage) {
      const auto host = static_cast<std::size_t>(placement.hosts[stage]);
      double forward = 0, backward = 0;
      for (const std::size_t end = layer + placement.cut[stage]; layer < end; ++layer) {
        forward += whole_.model.layers[layer].forward;
        backward += whole_.model.layers[layer].backward;
      }
      const double seconds = pass / problem.hosts[host].speed;
      // A schedule needs forwards that take time.
      costs.stages.push_back({std::max(1e-9, configured_seconds(forward * seconds)),
                              configured_seconds(backward * seconds / 2),
                              configured_seconds(backward * seconds / 2)});
      if (stage + 1 == placement.cut.size()) break;
      const auto next = static_cast<std::size_t>(placement.hosts[stage + 1]);
      const std::size_t hosts = problem.hosts.size();
      const double rate = std::min(problem.bytes_per_second[host * hosts + next],
                                   problem.bytes_per_second[next * hosts + host]);
      costs.transfers.push_back(configured_seconds(problem.layers[layer - 1].output_bytes / rate));
    }
    return costs;
  }

  void take_if_better(const HostProblem& problem, PlacedHosts placed) {
    if (best_ && placed.step >= best_->step) return;
    placed.even_step = even_step(problem, placed.input.strategy.schedule);
    best_ = std::move(placed);
  }

  double even_step(const HostProblem& problem, const std::string& name) const {
    const auto stages = static_cast<std::size_t>(problem.stages);
    const std::size_t layers = problem.layers.size();
    std::vector<int> hosts(stages);
    std::iota(hosts.begin(), hosts.end(), 0);
    std::vector<std::size_t> cut(stages, layers / stages);
    for (std::size_t stage = 0; stage < layers % stages; ++stage) ++cut[stage];
    const PlacedHosts even =
        placed_with(problem, placement_of(problem, std::move(hosts), std::move(cut)), name);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      const double memory = even.hosts[stage].memory_bytes;
      if (memory > 0 && even.memory_bytes[stage] > memory) return 0;
    }
    return even.step;
  }

  const PlanInput& input_;
  const HostLinks& links_;
  PlanInput whole_;  ///< Blocks are its layers.
  StepTime time_;    ///< Time of the global batch on one device.
  std::optional<PlacedHosts> best_;
};

}  // namespace

HostLinks hosts_of(const PlanInput& input) {
  const auto nodes = static_cast<std::size_t>(input.strategy.nodes);
  HostLinks links{.latency = input.network.latency};
  const auto& measured = input.network.measured;
  if (measured && measured->hosts() != input.strategy.nodes) {
    refuse("{} has {} hosts, not {}: give --nodes {}", input.network.name, measured->hosts(),
           input.strategy.nodes, measured->hosts());
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    const auto number = static_cast<int>(i);
    const std::string name = measured ? measured->host(number).name : "";
    links.hosts.push_back({.name = name.empty() ? fmt::format("host{}", i) : name,
                           .memory_bytes = input.device.memory_bytes});
    for (std::size_t j = 0; j < nodes; ++j) {
      if (!measured || i == j) {
        links.bytes_per_second.push_back(input.network.goodput());
        continue;
      }
      const topology::Link path = measured->path(measured->ranks_on(number).front(),
                                                 measured->ranks_on(static_cast<int>(j)).front());
      links.bytes_per_second.push_back(path.bytes_per_second);
      links.latency = std::max(links.latency, std::chrono::duration<double>(path.latency).count());
    }
  }
  return links;
}

std::optional<PlacedHosts> place_over_hosts(const PlanInput& input, const HostLinks& links,
                                            const std::vector<std::string>& schedules) {
  return HostSearch(input, links).run(schedules);
}

}  // namespace gradwire::plan
