#include "gradwire/recipe/dry_run.h"

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/drawing.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/recipe/models.h"

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

/// The schedule, verified and drawn with stages that take equally long.
std::string schedule_text(const pipeline::PipelineSchedule& schedule) {
  if (const auto fault = pipeline::find_fault(schedule)) {
    refuse("pipeline.schedule {}: {}: {}", schedule.name, pipeline::name_of(fault->fault),
           fault->message);
  }
  const auto timeline = pipeline::simulate(
      schedule, pipeline::divided_costs({}, schedule.ranks(), schedule.stages()));
  return fmt::format(
      "{} with {} micro-batches: verified; {:.1f} % idle with equal stages and an ideal "
      "network\n{}",
      schedule.name, schedule.micro_batches, 100 * timeline.bubble,
      pipeline::draw_text(schedule, timeline));
}

}  // namespace

std::string dry_run(const TrainConfig& config, int ranks) {
  const MeshDegrees mesh = complete_degrees(config.mesh, ranks);
  const std::int64_t samples = batch_size_per_replica(config, ranks);
  const Layers layers = make_layers(config.model);
  std::string text = fmt::format("{} ranks: {}\nmodel {}: {} layers; {} samples per replica\n",
                                 ranks, text_of(mesh), config.model.name, layers.size(), samples);
  if (mesh.pipeline == 1) return text;
  const auto schedule = value_or_throw(pipeline::make_pipeline(
      config.pipeline.schedule, {.ranks = mesh.pipeline,
                                 .micro_batches = static_cast<int>(std::min<std::int64_t>(
                                     config.pipeline.micro_batches, samples))}));
  const auto cut = complete_cut(layers, config.pipeline.cut, schedule.stages());
  return text + stages_text(layers, cut, schedule) + schedule_text(schedule);
}

}  // namespace gradwire::recipe
