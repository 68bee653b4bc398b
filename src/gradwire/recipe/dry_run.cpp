#include "gradwire/recipe/dry_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/drawing.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/pipeline/weight_rules.h"
#include "gradwire/recipe/hogwild_run.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/run_devices.h"
#include "gradwire/recipe/run_inside.h"
#include "gradwire/recipe/servers_advice.h"
#include "gradwire/recipe/servers_config.h"

namespace gradwire::recipe {
namespace {

std::string stages_text(const Layers& layers, const std::vector<std::size_t>& cut,
                        const pipeline::PipelineSchedule& schedule) {
  const std::vector<double> parameters = parameter_counts(layers);
  std::string text;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < cut.size(); ++stage) {
    const std::size_t first = layer;
    double sum = 0;
    for (; layer < first + cut[stage]; ++layer) sum += parameters[layer];
    text += fmt::format("stage {} on rank {} of the pipeline: {} to {}, {:.0f} parameters\n", stage,
                        schedule.rank_of[stage], layers.name(first), layers.name(layer - 1), sum);
  }
  return text;
}

/// The data that the ranks keep from forward to backward.
std::string kept_text(const pipeline::PipelineSchedule& schedule, bool recompute) {
  return fmt::format("kept, by rank: {} of {} micro-batches{}\n",
                     recompute ? "inputs of stages" : "activations",
                     fmt::join(pipeline::kept_by_rank(schedule), ", "),
                     recompute ? "; a backward computes its forward again" : "");
}

/// When an asynchronous schedule updates the weights.
std::string updates_text(const pipeline::PipelineSchedule& schedule, int replicas) {
  if (schedule.weights == pipeline::WeightRule::flush) return "";
  return fmt::format(
      "each stage is updated after each {}{}\n",
      updates_each_micro_batch(schedule.weights) ? "micro-batch" : "step",
      replicas > 1 ? fmt::format(", by the mean gradient of {} replicas", replicas) : "");
}

/// The schedule, verified, and drawn with its costs.
std::string schedule_text(const pipeline::PipelineSchedule& schedule,
                          const pipeline::PipelineCosts& costs) {
  if (const auto fault = pipeline::find_fault(schedule)) {
    refuse("pipeline.schedule {}: {}: {}", schedule.name, pipeline::name_of(fault->fault),
           fault->message);
  }
  const bool known = !costs.stages.empty();
  const auto timeline = pipeline::simulate(
      schedule, known ? costs : pipeline::divided_costs({}, schedule.ranks(), schedule.stages()));
  return fmt::format(
      "{} with {} micro-batches: verified; {:.1f} % idle with {}\n{}", schedule.name,
      schedule.micro_batches, 100 * timeline.bubble,
      known ? fmt::format("pipeline.costs, {:.4g} ms a step", 1e3 * timeline.step_seconds)
            : "equal stages and an ideal network",
      pipeline::draw_text(schedule, timeline));
}

/// Which layers the tensor axis divides, and what its ranks exchange.
std::string tensor_text(const TrainConfig& config) {
  std::vector<std::string> divided;
  std::vector<std::string> whole;
  for (const std::string& name : divisible_layers(config.model)) {
    (config.tensor.divides(name) ? divided : whole).push_back(name);
  }
  std::string text =
      fmt::format("tensor {} divides {}", config.mesh.tensor, fmt::join(divided, ", "));
  if (!whole.empty()) text += fmt::format("; every rank has {}", fmt::join(whole, ", "));
  return text + "\n";
}

/// The largest exchange of a text model's block: an all-reduce of its output, four times.
std::string block_traffic_text(const TrainConfig& config, std::int64_t samples) {
  if (config.data.name != "text") return "";
  const std::int64_t parts = config.micro_batches();
  const std::int64_t rows = (samples + parts - 1) / parts;
  const double bytes = 4.0 * static_cast<double>(rows * config.model.context * config.model.width);
  const int ranks = config.mesh.tensor;
  return fmt::format(
      "each divided block sends {} per rank and micro-batch, in four all-reduces that wait\n",
      format_bytes(static_cast<std::uint64_t>(8 * bytes * (ranks - 1) / ranks)));
}

/// Who serves, and how a step is made.
std::string servers_text(const TrainConfig& config, int workers) {
  const ServersConfig& servers = config.servers;
  if (!servers.enabled) return "";
  const std::int64_t count = servers.count > 0 ? servers.count : workers;
  if (servers.rows.enabled) {
    return fmt::format(
        "servers: {} {}, each with 1/{} of {} embedding rows; staleness {}: {} permits\n", count,
        servers.beside_workers ? "beside the first workers" : "on ranks of their own", count,
        config.model.rows, servers.rows.staleness, servers.rows.staleness + 1);
  }
  std::string text = fmt::format(
      "servers: {} {}, mode {}, each with 1/{} of the parameters and of the optimizer\n", count,
      servers.beside_workers ? "beside the first workers" : "on ranks of their own", servers.mode,
      count);
  if (servers.deals()) {
    text += fmt::format("server 0 deals batches of {} samples\n",
                        config.batch_size / servers.asynchronous(workers));
  }
  if (servers.groups > 0) {
    text += fmt::format("{} groups of {} workers, synchronous within\n", servers.groups,
                        workers / servers.groups);
  }
  if (!servers.units.empty()) {
    text += fmt::format("asynchronous units: {}\n", fmt::join(servers.units, ", "));
  }
  if (const std::string key = norms_over_servers(config); !key.empty()) {
    text += fmt::format(
        "{} takes norms over all servers: they step when the last gradient has arrived\n", key);
  }
  for (const std::string& advice : advice_on_servers(config, workers)) text += advice + "\n";
  return text;
}

/// How many parameters are in each group of the optimizer.
std::string groups_text(const TrainConfig& config) {
  const std::vector<std::size_t> sizes = check_groups(config);
  if (sizes.empty()) return "";
  std::string text = fmt::format("optimizer {}: {} parameters have its own settings",
                                 config.optimizer.name, sizes[0]);
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    text += fmt::format("; {} those of {}", sizes[i],
                        fmt::join(config.optimizer.groups[i - 1].match, ", "));
  }
  return text + "\n";
}

}  // namespace

std::string dry_run(const TrainConfig& config, int ranks) {
  const MeshDegrees mesh = complete_degrees(config.mesh, ranks);
  const std::int64_t samples = batch_size_per_replica(config, ranks);
  const Layers layers = make_layers(config.model);
  std::string text = fmt::format("{} ranks: {}\nmodel {}: {} layers; {} samples per replica\n",
                                 ranks, text_of(mesh), config.model.name, layers.size(), samples);
  text += devices_text(config) + inside_text(config) + groups_text(config) +
          servers_text(config, ranks) + hogwild_text(config, ranks);
  if (mesh.tensor > 1) text += tensor_text(config) + block_traffic_text(config, samples);
  if (mesh.spatial > 1) {
    text += fmt::format("spatial {}: images in {} x {} parts of height and width\n", mesh.spatial,
                        config.spatial.height, config.spatial.width);
  }
  if (mesh.pipeline == 1) return text;
  const auto schedule = value_or_throw(pipeline::make_pipeline(
      config.pipeline.schedule, {.ranks = mesh.pipeline,
                                 .micro_batches = static_cast<int>(std::min<std::int64_t>(
                                     config.pipeline.micro_batches, samples)),
                                 .costs = config.pipeline.costs}));
  const auto cut = complete_cut(layers, config.pipeline.cut, schedule.stages());
  return text + stages_text(layers, cut, schedule) +
         kept_text(schedule, config.pipeline.recompute) + updates_text(schedule, mesh.data) +
         schedule_text(schedule, config.pipeline.costs);
}

}  // namespace gradwire::recipe
