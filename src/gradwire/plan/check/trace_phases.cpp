#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "gradwire/base/statistics.h"
#include "gradwire/plan/check/run_phases.h"
#include "gradwire/trace/step_trace.h"

namespace gradwire::plan {
namespace {

std::optional<TraceKind> kind_named(const std::string& name) {
  for (const TraceKind kind :
       {TraceKind::step, TraceKind::data, TraceKind::forward, TraceKind::backward,
        TraceKind::optimizer, TraceKind::wait, TraceKind::communication, TraceKind::other}) {
    if (name_of(kind) == name) return kind;
  }
  return std::nullopt;
}

Time at(double microseconds) {
  return Time(Duration(std::llround(1e3 * microseconds)));
}

/// Returns the log of each rank.
std::map<int, TraceLog> logs_of(const nlohmann::json& trace) {
  std::map<int, TraceLog> logs;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const auto kind = kind_named(event.at("cat").get<std::string>());
    if (!kind) continue;
    TraceLog& log = logs[event.at("pid").get<int>()];
    log.names = {"span"};
    const double begin = event.at("ts").get<double>();
    log.spans.push_back({.kind = *kind,
                         .step = event.at("args").value("step", std::int64_t{-1}),
                         .begin = at(begin),
                         .end = at(begin + event.at("dur").get<double>()),
                         .bytes = event.at("args").value("bytes", std::uint64_t{0})});
  }
  return logs;
}

StepPhases phases_of(const StepMedians& medians) {
  StepPhases phases;
  phases.forward = medians.forward;
  phases.backward = medians.backward;
  phases.update = medians.optimizer;
  phases.data = medians.data;
  phases.other = medians.other;
  phases.compute = medians.busy - medians.data;
  phases.communication = medians.hidden + medians.exposed;
  phases.exposed = medians.exposed;
  phases.step = medians.total;
  return phases;
}

constexpr std::array kMembers{
    &StepPhases::forward,       &StepPhases::backward, &StepPhases::update,
    &StepPhases::data,          &StepPhases::other,    &StepPhases::compute,
    &StepPhases::communication, &StepPhases::exposed,  &StepPhases::step};

}  // namespace

Result<std::vector<MeasuredRun>> phases_of_trace(const nlohmann::json& trace) {
  std::map<int, TraceLog> logs;
  try {
    logs = logs_of(trace);
  } catch (const nlohmann::json::exception& e) {
    return failure(ErrorKind::invalid_argument,
                   std::string("an event of the trace is not in gradwire's format: ") + e.what());
  }
  std::vector<StepPhases> ranks;
  for (const auto& [rank, log] : logs) {
    const auto steps = break_down(log);
    if (!steps.empty()) ranks.push_back(phases_of(medians_of(steps)));
  }
  if (ranks.empty()) return std::vector<MeasuredRun>{};
  MeasuredRun run;
  run.how.ranks = static_cast<int>(logs.size());
  for (const auto member : kMembers) {
    std::vector<double> values;
    for (const StepPhases& phases : ranks) values.push_back(phases.*member);
    run.phases.*member = median(values);
  }
  return std::vector{run};
}

}  // namespace gradwire::plan
