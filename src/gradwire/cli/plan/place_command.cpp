#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/plan/place_hosts.h"
#include "gradwire/cli/plan/plan_arguments.h"
#include "gradwire/plan/place/degrees.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 5;

Json json_of(const plan::PlacedStrategy& placed) {
  const plan::Strategy& s = placed.input.strategy;
  Json stages = Json::array();
  Json cut = Json::array();
  const std::vector<plan::ModelLayer> layers = plan::with_blocks(placed.input.model).layers;
  for (const plan::PipelineStage& stage : placed.stages.stages) {
    cut.push_back(stage.end - stage.begin);
    stages.push_back({{"first_layer", layers[stage.begin].name},
                      {"last_layer", layers[stage.end - 1].name},
                      {"layers", stage.end - stage.begin},
                      {"micro_batch_ms", 1e3 * stage.seconds}});
  }
  return {{"tensor", s.tensor},
          {"pipeline", s.pipeline},
          {"data", s.data()},
          {"micro_batches", s.micro_batches},
          {"batch", s.batch},
          {"schedule", s.schedule},
          {"step_ms", 1e3 * placed.time.step},
          {"samples_per_second", placed.time.samples_per_second},
          {"imbalance", placed.imbalance},
          {"memory_bytes", placed.memory.total()},
          {"stages", stages},
          {"config",
           {{"mesh", {{"data", s.data()}, {"pipeline", s.pipeline}, {"tensor", s.tensor}}},
            {"pipeline",
             {{"micro_batches", s.micro_batches}, {"schedule", s.schedule}, {"cut", cut}}}}}};
}

std::string text_of(const std::vector<plan::PlacedStrategy>& found) {
  std::string text =
      fmt::format("{:>9} {:>6} {:>8} {:>5} {:>13} {:>12} {:>9} {:>8}\n", "samples/s", "tensor",
                  "pipeline", "data", "micro-batches", "schedule", "imbalance", "GB");
  for (std::size_t i = 0; i < std::min(kShown, found.size()); ++i) {
    const plan::Strategy& s = found[i].input.strategy;
    text += fmt::format("{:>9.4g} {:>6} {:>8} {:>5} {:>13} {:>12} {:>9.2f} {:>8.3g}\n",
                        found[i].time.samples_per_second, s.tensor, s.pipeline, s.data(),
                        s.micro_batches, s.pipeline > 1 ? s.schedule : "", found[i].imbalance,
                        found[i].memory.total() / 1e9);
  }
  const plan::PlacedStrategy& best = found.front();
  const std::vector<plan::ModelLayer> layers = plan::with_blocks(best.input.model).layers;
  if (best.stages.stages.size() > 1) text += "\nThe stages of the first one:\n";
  for (std::size_t i = 0; best.stages.stages.size() > 1 && i < best.stages.stages.size(); ++i) {
    const plan::PipelineStage& stage = best.stages.stages[i];
    text += fmt::format("  {}: {} .. {}, {:.2f} ms a micro-batch\n", i, layers[stage.begin].name,
                        layers[stage.end - 1].name, 1e3 * stage.seconds);
  }
  return text;
}

/// Takes the number of nodes from what else says it.
void count_hosts(PlanArguments& given, const HostArguments& hosts) {
  if (hosts.count() > 0) {
    given.strategy.nodes = static_cast<int>(hosts.count());
    return;
  }
  const plan::Network network = plan::network_named(given.network);
  if (network.measured) given.strategy.nodes = network.measured->hosts();
}

/// Returns nullopt if none fits.
std::optional<plan::PlacedHosts> pipeline_over_hosts(const HostArguments& hosts,
                                                     const plan::PlanInput& input,
                                                     bool schedule_given) {
  const plan::HostLinks links = links_of(hosts, input);
  if (input.strategy.devices_per_node > 1 && hosts.differ()) {
    refuse("--devices {}: hosts that differ have one device each", input.strategy.devices_per_node);
  }
  if (input.strategy.devices_per_node > 1 || links.hosts.size() < 2) return std::nullopt;
  return plan::place_over_hosts(
      input, links,
      schedule_given ? std::vector{input.strategy.schedule} : std::vector<std::string>{});
}

}  // namespace

int plan_place_command(int argc, char** argv) {
  PlanArguments given;
  HostArguments hosts;
  CLI::App app(
      "Finds the degrees of tensor, pipeline and data parallelism that train the global batch of "
      "the options fastest, and for hosts that differ, the order of hosts and the layers of each. "
      "The options are those of gradwire plan, and those of hosts.",
      "gradwire plan place");
  declare(app, given);
  declare(app, hosts);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (app.count("--nodes") == 0) count_hosts(given, hosts);
  SteadyClock clock;
  if (given.servers == "auto") refuse("--servers auto is an option of gradwire plan alone");
  const plan::PlanInput input = plan_input(given, clock);
  std::vector<plan::PlacedStrategy> found;
  if (!hosts.differ()) {
    found = app.count("--schedule") > 0 ? plan::search_degrees(input, {input.strategy.schedule})
                                        : plan::search_degrees(input);
  }
  const auto over_hosts = hosts.differ() || input.network.measured || !hosts.config.empty()
                              ? pipeline_over_hosts(hosts, input, app.count("--schedule") > 0)
                              : std::nullopt;
  if (found.empty() && !over_hosts) {
    refuse(
        "{} does not fit on {} devices of {:.0f} GB with any partitioning: use more "
        "nodes, or devices with more memory",
        input.model.name, input.strategy.devices(), input.device.memory_bytes / 1e9);
  }
  Json json = {{"strategies", Json::array()}};
  for (const plan::PlacedStrategy& placed : found) json["strategies"].push_back(json_of(placed));
  if (over_hosts) json["over_hosts"] = Json::parse(hosts_json(*over_hosts));
  const std::string whole = json.dump(2) + "\n";
  std::string text = found.empty() ? "" : text_of(found);
  if (over_hosts) text += (text.empty() ? "" : "\n") + hosts_text(*over_hosts);
  fmt::print("{}", given.json == "-" ? whole : text);
  if (over_hosts && !hosts.config.empty()) write_file(hosts.config, hosts_config(*over_hosts));
  if (given.json.empty() || given.json == "-") return 0;
  write_file(given.json, whole);
  return 0;
}

}  // namespace gradwire::cli
