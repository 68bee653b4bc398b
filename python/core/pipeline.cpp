// Pipeline schedules as values. python/gradwire/pipeline.py is the public interface.
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/drawing.h"
#include "gradwire/pipeline/search.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/plan/network.h"

namespace gradwire::python {

void bind_pipeline(py::module_& module);

namespace {

using pipeline::PipelineCosts;
using pipeline::PipelineSchedule;

constexpr std::string_view kLetters = "FBIW";  // By pipeline::Compute.

/// A task: letter, stage, micro-batch, delay.
using TaskFields = std::tuple<std::string, int, int, int>;
/// Rank, step, task, begin, end.
using TimedFields = std::tuple<Rank, int, TaskFields, double, double>;
using Order = std::vector<std::vector<TaskFields>>;

TaskFields fields_of(const pipeline::Task& task) {
  return {std::string(1, kLetters[static_cast<std::size_t>(task.compute)]), task.stage,
          task.micro_batch, task.delay};
}

pipeline::Task task_of(const TaskFields& fields) {
  const auto& [letter, stage, micro_batch, delay] = fields;
  const std::size_t compute = letter.size() == 1 ? kLetters.find(letter) : std::string_view::npos;
  if (compute == std::string_view::npos) refuse("{} is none of F, B, I and W", letter);
  return {static_cast<pipeline::Compute>(compute), stage, micro_batch, delay};
}

Order order_of(const PipelineSchedule& schedule) {
  Order order;
  for (const auto& tasks : schedule.order) {
    auto& fields = order.emplace_back();
    for (const pipeline::Task& task : tasks) fields.push_back(fields_of(task));
  }
  return order;
}

/// All that a schedule consists of, for pickle.
py::tuple state_of(const PipelineSchedule& schedule) {
  std::vector<std::pair<int, int>> edges, bounds;
  for (const auto& [from, to] : schedule.edges) edges.emplace_back(from, to);
  for (const auto& [staleness, kept] : schedule.weight_bounds) bounds.emplace_back(staleness, kept);
  return py::make_tuple(schedule.name, schedule.micro_batches, schedule.rank_of, edges,
                        order_of(schedule), schedule.trains, static_cast<int>(schedule.weights),
                        bounds, schedule.barrier, schedule.sends_in_flight, schedule.receives_ahead,
                        schedule.kept);
}

PipelineSchedule schedule_of(const py::tuple& state) {
  PipelineSchedule schedule{.name = state[0].cast<std::string>(),
                            .micro_batches = state[1].cast<int>(),
                            .rank_of = state[2].cast<std::vector<Rank>>(),
                            .trains = state[5].cast<bool>(),
                            .weights = static_cast<pipeline::WeightRule>(state[6].cast<int>()),
                            .barrier = state[8].cast<bool>(),
                            .sends_in_flight = state[9].cast<int>(),
                            .receives_ahead = state[10].cast<int>(),
                            .kept = state[11].cast<int>()};
  using Pairs = std::vector<std::pair<int, int>>;
  for (const auto& [from, to] : state[3].cast<Pairs>()) schedule.edges.push_back({from, to});
  for (const auto& tasks : state[4].cast<Order>()) {
    auto& order = schedule.order.emplace_back();
    for (const TaskFields& fields : tasks) order.push_back(task_of(fields));
  }
  for (const auto& [staleness, kept] : state[7].cast<Pairs>()) {
    schedule.weight_bounds.push_back({staleness, kept});
  }
  return schedule;
}

PipelineCosts costs_of(const std::vector<std::tuple<double, double, double>>& stages,
                       double transfer, double latency) {
  PipelineCosts costs{.transfer = transfer, .latency = latency};
  for (const auto& [forward, input, weight] : stages) {
    costs.stages.push_back({forward, input, weight});
  }
  return costs;
}

PipelineSchedule named(const std::string& name, int ranks, int micro_batches, int chunks, int kept,
                       bool barrier, const PipelineCosts& costs) {
  PipelineSchedule schedule =
      value_or_throw(pipeline::make_pipeline(name, {.ranks = ranks,
                                                    .micro_batches = micro_batches,
                                                    .chunks = chunks,
                                                    .kept = kept,
                                                    .costs = costs}));
  schedule.barrier = barrier;
  return schedule;
}

PipelineSchedule searched(int ranks, int micro_batches, std::vector<int> kept, bool barrier,
                          int steps, const PipelineCosts& costs) {
  return value_or_throw(pipeline::best_schedule({.ranks = ranks,
                                                 .micro_batches = micro_batches,
                                                 .costs = costs,
                                                 .kept = std::move(kept),
                                                 .barrier = barrier,
                                                 .steps = steps}));
}

PipelineSchedule read(const std::string& text, const std::string& name, bool barrier) {
  PipelineSchedule schedule = value_or_throw(pipeline::from_csv(text, name));
  schedule.barrier = barrier;
  return schedule;
}

std::optional<std::pair<std::string, std::string>> fault_of(const PipelineSchedule& schedule) {
  const auto found = pipeline::find_fault(schedule);
  if (!found) return std::nullopt;
  return std::pair(std::string(name_of(found->fault)), found->message);
}

/// Seconds of a step, share of idle time, tasks.
std::tuple<double, double, std::vector<TimedFields>> simulated(const PipelineSchedule& schedule,
                                                               const PipelineCosts& costs,
                                                               int steps) {
  const pipeline::Timeline timeline = simulate(schedule, costs, steps);
  std::vector<TimedFields> tasks;
  for (const pipeline::TimedTask& each : timeline.tasks) {
    tasks.emplace_back(each.rank, each.step, fields_of(each.task), each.begin, each.end);
  }
  return {timeline.step_seconds, timeline.bubble, std::move(tasks)};
}

std::string drawn(const PipelineSchedule& schedule, const PipelineCosts& costs, int steps, bool svg,
                  int columns) {
  const pipeline::Timeline timeline = simulate(schedule, costs, steps);
  return svg ? draw_svg(schedule, timeline) : draw_text(schedule, timeline, columns);
}

/// Bytes per second and seconds of latency.
std::pair<double, double> link_of(const std::string& network) {
  const plan::Network found = plan::network_named(network);
  return {found.goodput(), found.latency};
}

void bind_schedule(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<PipelineSchedule>(module, "PipelineSchedule")
      .def_readonly("name", &PipelineSchedule::name)
      .def_readonly("micro_batches", &PipelineSchedule::micro_batches)
      .def_readonly("rank_of_stage", &PipelineSchedule::rank_of)
      .def_readonly("trains", &PipelineSchedule::trains)
      .def_readonly("barrier", &PipelineSchedule::barrier)
      .def_property_readonly("order", &order_of)
      .def_property_readonly("kept", &pipeline::kept_by_rank)
      .def_property_readonly("max_delay", &pipeline::max_delay)
      .def_property_readonly("weights",
                             [](const PipelineSchedule& s) { return name_of(s.weights); })
      .def("torch_csv",
           [](const PipelineSchedule& s) { return value_or_throw(pipeline::to_torch_csv(s)); })
      .def("fault", &fault_of, Unlocked())
      .def("simulate", &simulated, py::arg("costs"), py::arg("steps"), Unlocked())
      .def("draw", &drawn, py::arg("costs"), py::arg("steps"), py::arg("svg"), py::arg("columns"),
           Unlocked())
      .def(py::pickle(&state_of, &schedule_of));
}

}  // namespace

void bind_pipeline(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<PipelineCosts>(module, "PipelineCosts")
      .def(py::init(&costs_of), py::arg("stages"), py::arg("transfer"), py::arg("latency"));
  bind_schedule(module);
  module.def("pipeline_named", &named, py::arg("name"), py::arg("ranks"), py::arg("micro_batches"),
             py::arg("chunks"), py::arg("kept"), py::arg("barrier"), py::arg("costs"), Unlocked());
  module.def("pipeline_search", &searched, py::arg("ranks"), py::arg("micro_batches"),
             py::arg("kept"), py::arg("barrier"), py::arg("steps"), py::arg("costs"), Unlocked());
  module.def("pipeline_from_csv", &read, py::arg("text"), py::arg("name"), py::arg("barrier"));
  module.def(
      "pipeline_chunks",
      [](const std::string& name, int chunks) {
        return pipeline::chunks_of(name, {.chunks = chunks});
      },
      py::arg("name"), py::arg("chunks"));
  module.def("pipeline_names", [] {
    std::vector<std::pair<std::string, std::string>> names;
    for (const pipeline::Generator& each : pipeline::generators()) {
      names.emplace_back(each.name, each.summary);
    }
    return names;
  });
  module.def("network_link", &link_of, py::arg("network"));
  module.def(
      "parse_rate", [](const std::string& text) { return value_or_throw(parse_rate(text)); },
      py::arg("text"));
}

}  // namespace gradwire::python
