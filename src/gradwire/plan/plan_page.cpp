#include "gradwire/plan/plan_page.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/pipeline/drawing.h"
#include "gradwire/plan/ways.h"
#include "gradwire/report/report_page.h"

/// Compiled in by cmake/GradwireEmbed.cmake.
namespace gradwire::embedded {
std::string_view plan_js();
}

namespace gradwire::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxPageNodes = 4096;
constexpr std::array<const char*, 7> kUsual{"1gbe",   "2.5gbe", "10gbe", "25gbe",
                                            "100gbe", "ib_hdr", "ib_ndr"};

/// Rounds to four digits, more than the model's accuracy.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

PlanInput at(const PlanInput& input, int nodes, const Network& network, double batch,
             const std::string& codec) {
  PlanInput point = input;
  point.strategy.nodes = nodes;
  point.strategy.codec = codec;
  // Measured times are those of the given batch.
  const double times = batch / input.strategy.batch;
  point.strategy.batch = batch;
  point.measured.step *= times;
  point.model.recorded_seconds *= times;
  if (network.name != input.network.name) point.measured.communication = 0;
  point.network = network;
  return point;
}

/// Results for each point of the grid: nodes, networks, batches, codecs; the last varies fastest.
struct Table {
  Json eta = Json::array(), step = Json::array(), rate = Json::array(), memory = Json::array(),
       bottleneck = Json::array();

  void add(const PlanInput& point) {
    const StepTime time = step_time(point);
    eta.push_back(rounded(time.eta));
    step.push_back(rounded(time.step));
    rate.push_back(rounded(time.samples_per_second));
    memory.push_back(rounded(memory_use(point).total()));
    bottleneck.push_back(static_cast<int>(time.bottleneck));
  }
};

Table table_of(const PlanInput& input, const PlanGrid& grid) {
  Table table;
  for (const int nodes : grid.nodes) {
    for (const Network& network : grid.networks) {
      for (const double batch : grid.batches) {
        for (const std::string& codec : grid.codecs)
          table.add(at(input, nodes, network, batch, codec));
      }
    }
  }
  return table;
}

Json axes_json(const PlanGrid& grid) {
  Json networks = Json::array();
  for (const Network& network : grid.networks) networks.push_back(network.name);
  return {{"nodes", grid.nodes},
          {"networks", networks},
          {"batches", grid.batches},
          {"codecs", grid.codecs}};
}

Json start_json(const PlanInput& input) {
  const Strategy& s = input.strategy;
  return {
      {"nodes", s.nodes}, {"network", input.network.name}, {"batch", s.batch}, {"codec", s.codec}};
}

std::string about(const PlanInput& input) {
  const Strategy& s = input.strategy;
  return fmt::format(
      "{} parameters, {} x {} a node, precision {}, {}, overlap {}, ZeRO stage {}, {} pass{} a "
      "step",
      format_count(static_cast<double>(input.model.parameters())), s.devices_per_node,
      input.device.title, name_of(s.compute), name_of(s.optimizer), name_of(s.overlap),
      s.zero_stage, s.accumulate, s.accumulate == 1 ? "" : "es");
}

Json bottlenecks_json() {
  Json names = Json::array();
  for (const auto one :
       {PlanBottleneck::compute, PlanBottleneck::bandwidth, PlanBottleneck::latency,
        PlanBottleneck::storage, PlanBottleneck::update, PlanBottleneck::pipeline})
    names.push_back(name_of(one));
  return names;
}

/// The schedule of a pipeline, unless the picture would be too large; null: none.
Json drawing_json(const Way& way) {
  constexpr std::size_t kMaxTasks = 1500;
  if (way.cut.empty()) return nullptr;
  const RunPipeline made = run_pipeline(*way.placed);
  std::size_t tasks = 0;
  for (const auto& order : made.schedule.order) tasks += order.size();
  if (tasks > kMaxTasks) return nullptr;
  return draw_svg(made.schedule, simulate(made.schedule, made.costs));
}

Json ways_json(const PlanInput& input) {
  Json list = Json::array();
  for (const Way& way : compare_ways(input)) {
    const PhaseTimes& phases = way.time.phases;
    list.push_back({{"name", way.name},
                    {"text", sentence_of(way)},
                    {"why", reason_of(way)},
                    {"fits", way.fits},
                    {"step", rounded(way.step)},
                    {"bubble", rounded(phases.bubble)},
                    {"activations", rounded(phases.inside)},
                    {"exposed", rounded(way.time.exposed)},
                    {"memory", way.memory_by_stage},
                    {"drawing", drawing_json(way)}});
  }
  return list;
}

}  // namespace

PlanGrid default_grid(const PlanInput& input) {
  PlanGrid grid;
  const Strategy& s = input.strategy;
  // A replica needs at least this many devices.
  const int replica = s.tensor * s.pipeline;
  for (int nodes = 1; nodes <= kMaxPageNodes; nodes *= 2) {
    if (nodes * s.devices_per_node % replica == 0) grid.nodes.push_back(nodes);
  }
  bool own = false;
  for (const std::string name : kUsual) {
    own = own || name == input.network.name;
    grid.networks.push_back(name == input.network.name ? input.network : network_named(name));
    grid.networks.back().cards = input.network.cards;
  }
  if (!own) grid.networks.push_back(input.network);
  std::ranges::stable_sort(grid.networks, {}, &Network::goodput);
  for (int i = -3; i <= 4; ++i) grid.batches.push_back(std::ldexp(s.batch, i));
  const bool codecs = s.servers == 0 && input.network.takes_codecs() &&
                      (s.zero_stage == 0 || s.compute != ComputeType::mixed);
  grid.codecs = codecs ? std::vector<std::string>{"none", "bf16", "int8", "int4"}
                       : std::vector<std::string>{s.codec};
  if (std::ranges::find(grid.codecs, s.codec) == grid.codecs.end()) grid.codecs.push_back(s.codec);
  return grid;
}

Result<std::string> plan_page(const PlanInput& input, const PlanGrid& grid) {
  const Table table = table_of(input, grid);
  const Json data = {{"model", input.model.name},
                     {"about", about(input)},
                     {"sample", input.model.sample},
                     {"device_memory", input.device.memory_bytes},
                     {"axes", axes_json(grid)},
                     {"start", start_json(input)},
                     {"bottlenecks", bottlenecks_json()},
                     {"ways", ways_json(input)},
                     {"table",
                      {{"eta", table.eta},
                       {"step", table.step},
                       {"rate", table.rate},
                       {"memory", table.memory},
                       {"bottleneck", table.bottleneck}}}};
  return report::html_page({.title = "gradwire plan: " + input.model.name,
                            .data = data.dump(),
                            .scripts = {embedded::plan_js()}});
}

}  // namespace gradwire::plan
