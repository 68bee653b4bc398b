#include "gradwire/pipeline/simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "gradwire/pipeline/dependencies.h"
#include "gradwire/schedule/cost/port_network.h"

namespace gradwire::pipeline {
namespace {

using schedule::PortNetwork;

class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const PipelineCosts& costs, int steps)
      : costs_(costs), nodes_(dependencies_of(schedule, steps)), network_(costs.shares_ports) {
    waits_.reserve(nodes_.size());
    for (const Node& node : nodes_) waits_.push_back(node.waits_for);
  }

  std::vector<TimedTask> run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (waits_[i] == 0) begin(i, 0);
    }
    while (true) {
      const double sent = network_.next_end();
      const double next = ends_.empty() ? PortNetwork::kNever : ends_.top().first;
      if (std::min(sent, next) == PortNetwork::kNever) return std::move(tasks_);
      if (sent < next) {
        ends_.emplace(sent + costs_.latency, network_.end_next());
      } else {
        const auto [now, node] = ends_.top();
        ends_.pop();
        end(node, now);
      }
    }
  }

 private:
  void begin(std::size_t index, double now) {
    const Node& node = nodes_[index];
    if (node.kind == Node::Kind::transfer) {
      const bool gradient = node.task.compute != Compute::forward;
      const double seconds = costs_.transfer_between(node.task.stage, node.to);
      network_.start({.id = index,
                      .from = node.rank,
                      .to = node.to_rank,
                      .priority = gradient ? 1 : 0,
                      .seconds = seconds},
                     now);
      return;
    }
    double end = now;
    if (node.kind == Node::Kind::task) {
      end += costs_.of(node.task.stage).of(node.task.compute);
      tasks_.push_back({node.rank, node.step, node.task, now, end});
    }
    ends_.emplace(end, index);
  }

  void end(std::size_t index, double now) {
    for (const std::size_t next : nodes_[index].next) {
      if (--waits_[next] == 0) begin(next, now);
    }
  }

  using End = std::pair<double, std::size_t>;
  const PipelineCosts& costs_;
  std::vector<Node> nodes_;
  std::vector<int> waits_;
  PortNetwork network_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<TimedTask> tasks_;
};

/// Time at which all tasks of the first `steps` steps are done.
double end_of(const std::vector<TimedTask>& tasks, int steps) {
  double end = 0;
  for (const TimedTask& task : tasks) {
    if (task.step < steps) end = std::max(end, task.end);
  }
  return end;
}

double seconds_of_step(const std::vector<TimedTask>& tasks, int step) {
  double sum = 0;
  for (const TimedTask& task : tasks) sum += task.step == step ? task.end - task.begin : 0;
  return sum;
}

}  // namespace

double StageCosts::of(Compute compute) const {
  switch (compute) {
    case Compute::forward:
      return forward;
    case Compute::backward_input:
      return backward_input;
    case Compute::backward_weight:
      return backward_weight;
    case Compute::backward:
      break;
  }
  return backward_input + backward_weight;
}

PipelineCosts divided_costs(const StageCosts& rank, int ranks, int stages) {
  const double share = static_cast<double>(ranks) / stages;
  const StageCosts stage{rank.forward * share, rank.backward_input * share,
                         rank.backward_weight * share};
  return {.stages = std::vector(static_cast<std::size_t>(stages), stage)};
}

Timeline simulate(const PipelineSchedule& schedule, const PipelineCosts& costs, int steps) {
  Timeline timeline{.tasks = Simulation(schedule, costs, steps).run()};
  std::ranges::stable_sort(timeline.tasks, {}, &TimedTask::begin);
  const int before = steps / 2;
  timeline.step_seconds =
      (end_of(timeline.tasks, steps) - end_of(timeline.tasks, before)) / (steps - before);
  const double busy = seconds_of_step(timeline.tasks, 0);
  timeline.bubble = std::max(0.0, 1 - busy / (schedule.ranks() * timeline.step_seconds));
  return timeline;
}

}  // namespace gradwire::pipeline
