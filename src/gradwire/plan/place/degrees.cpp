#include "gradwire/plan/place/degrees.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/plan/search.h"

namespace gradwire::plan {
namespace {

std::vector<int> divisors(int number, int max) {
  std::vector<int> found;
  for (int d = 1; d <= std::min(number, max); ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

/// Returns the layers of one micro-batch on the devices that share them; weights are already
/// divided.
PipelineProblem pipeline_of(const PlanInput& input, const StepTime& time) {
  const Strategy& s = input.strategy;
  // One micro-batch through all layers, on the devices of one stage.
  const double passes = time.phases.forward + time.phases.backward;
  const double all = passes * s.pipeline / (s.accumulate * s.micro_batches);
  PipelineProblem problem{.layers = {}, .devices = s.pipeline};
  problem.bytes_per_second = input.network.goodput();
  problem.replicate = false;
  problem.use_all = true;
  const double samples = s.batch / s.micro_batches;
  for (const ModelLayer& layer : with_blocks(input.model).layers) {
    const double bytes = bytes_of(s.compute) / s.tensor;
    problem.layers.push_back({.seconds = all * (layer.forward + layer.backward),
                              .output_bytes = layer.crossing() * samples * bytes,
                              .weight_bytes = static_cast<double>(layer.parameters) * bytes,
                              .kept_bytes = layer.kept * samples * bytes});
  }
  return problem;
}

bool divides(const PlanInput& input, int tensor, int pipeline, double batch, int micro_batches) {
  const Strategy& s = input.strategy;
  const int heads = input.model.transformer.heads;
  if (tensor > 1 && (tensor > s.devices_per_node || heads == 0 || heads % tensor != 0))
    return false;
  if (pipeline > static_cast<int>(with_blocks(input.model).layers.size())) return false;
  if (pipeline == 1 && micro_batches > 1) return false;
  return batch >= micro_batches && std::fmod(batch, micro_batches) == 0;
}

}  // namespace

namespace {

/// Time of the slowest stage divided by the mean.
double imbalance_of(const PipelinePlacement& placement) {
  double slowest = 0, all = 0;
  for (const PipelineStage& stage : placement.stages) {
    slowest = std::max(slowest, stage.seconds);
    all += stage.seconds;
  }
  return all > 0 ? slowest * static_cast<double>(placement.stages.size()) / all : 1;
}

/// The phases of computing, of stages that differ.
PhaseTimes phases_of_stages(const PlacedStrategy& placed) {
  const Strategy& s = placed.input.strategy;
  PhaseTimes phases = placed.time.phases;
  const double computing = phases.forward + phases.backward;
  // Simulated schedules have stages on one rank each; devices that share layers wait inside.
  if (s.tensor > 1 || s.pipeline > kSimulatedStages) {
    phases.unequal = (placed.imbalance - 1) * (computing + phases.bubble);
    return phases;
  }
  const RunPipeline run = run_pipeline(placed);
  const double seconds = seconds_of(run);
  RunPipeline ideal = run;
  std::ranges::fill(ideal.costs.transfers, 0);
  ideal.costs.latency = 0;
  const double on_ideal_network = std::min(seconds, seconds_of(ideal));
  std::vector<double> busy(static_cast<std::size_t>(s.pipeline));
  for (std::size_t stage = 0; stage < run.costs.stages.size(); ++stage) {
    const auto rank = static_cast<std::size_t>(run.schedule.rank_of[stage]);
    const pipeline::StageCosts& costs = run.costs.stages[stage];
    busy[rank] += s.micro_batches * (costs.forward + costs.of(pipeline::Compute::backward));
  }
  const double slowest = std::min(std::ranges::max(busy), on_ideal_network);
  const double mean = computing / s.accumulate;
  phases.unequal = s.accumulate * std::max(0.0, slowest - mean);
  phases.bubble = s.accumulate * (on_ideal_network - slowest);
  phases.inside = s.accumulate * (seconds - on_ideal_network);
  return phases;
}

}  // namespace

RunPipeline run_pipeline(const PlacedStrategy& placed) {
  const PlanInput& input = placed.input;
  const Strategy& s = input.strategy;
  const std::vector<ModelLayer> layers = with_blocks(input.model).layers;
  const PhaseTimes& phases = placed.time.phases;
  // One micro-batch through all layers, on the devices of one stage.
  const double all =
      (phases.forward + phases.backward) * s.pipeline / (s.accumulate * s.micro_batches);
  RunPipeline run{.schedule = {}, .costs = {.latency = configured_seconds(input.network.latency)}};
  for (const PipelineStage& stage : placed.stages.stages) {
    double forward = 0, backward = 0;
    for (std::size_t layer = stage.begin; layer < stage.end; ++layer) {
      forward += all * layers[layer].forward;
      backward += all * layers[layer].backward;
    }
    run.costs.stages.push_back({std::max(1e-9, configured_seconds(forward)),
                                configured_seconds(backward / 2),
                                configured_seconds(backward / 2)});
    if (stage.end == layers.size()) break;
    const double bytes =
        layers[stage.end - 1].crossing() * s.batch / s.micro_batches * bytes_of(s.compute);
    run.costs.transfers.push_back(configured_seconds(bytes / input.network.goodput()));
  }
  run.schedule = value_or_throw(pipeline::make_pipeline(
      s.schedule, {.ranks = s.pipeline, .micro_batches = s.micro_batches, .costs = run.costs}));
  return run;
}

double seconds_of(const RunPipeline& run) {
  constexpr int kPasses = 4;
  return simulate(run.schedule, run.costs, kPasses).step_seconds;
}

std::optional<PlacedStrategy> place_stages(const PlanInput& input, int tensor, int pipeline,
                                           int micro_batches) {
  const Strategy& s = input.strategy;
  if (s.devices() % (tensor * pipeline) != 0) return std::nullopt;
  PlacedStrategy placed{.input = input};
  Strategy& own = placed.input.strategy;
  own.tensor = tensor;
  own.pipeline = pipeline;
  own.micro_batches = micro_batches;
  own.batch = s.global_batch() / (own.data() * s.accumulate);
  if (!divides(input, tensor, pipeline, own.batch, micro_batches)) return std::nullopt;
  check_strategy(own);
  placed.memory = memory_use(placed.input);
  placed.time = step_time_of_equal_stages(placed.input);
  const PipelineProblem problem = pipeline_of(placed.input, placed.time);
  const auto stages = place_pipeline(problem);
  if (!stages || static_cast<int>(stages->stages.size()) != pipeline) return std::nullopt;
  placed.stages = *stages;
  placed.imbalance = imbalance_of(placed.stages);
  if (pipeline > 1) placed.time = step_time_with(placed.input, phases_of_stages(placed));
  return placed;
}

std::optional<PlacedStrategy> place(const PlanInput& input, int tensor, int pipeline,
                                    int micro_batches) {
  auto placed = place_stages(input, tensor, pipeline, micro_batches);
  if (placed && placed->memory.total() > input.device.memory_bytes) return std::nullopt;
  return placed;
}

namespace {

constexpr std::size_t kSearched = 4;  ///< Pipelines for which "auto" searches a schedule.

double step_of(const PlacedStrategy& placed) {
  return placed.time.step;
}

/// Tries "auto" for the fastest pipelines.
void search_schedules(std::vector<PlacedStrategy>& found) {
  std::size_t searched = 0;
  for (PlacedStrategy& placed : found) {
    const Strategy& s = placed.input.strategy;
    if (s.pipeline < 2 || s.pipeline > kSimulatedStages || s.tensor > 1) continue;
    if (++searched > kSearched) break;
    PlanInput input = placed.input;
    input.strategy.schedule = "auto";
    auto better = place(input, s.tensor, s.pipeline, s.micro_batches);
    if (better && step_of(*better) < step_of(placed)) placed = std::move(*better);
  }
}

}  // namespace

std::vector<PlacedStrategy> search_degrees(const PlanInput& input,
                                           const std::vector<std::string>& schedules) {
  const Strategy& s = input.strategy;
  std::vector<PlacedStrategy> found;
  const auto consider = [&](int tensor, int pipeline, int micro_batches) {
    std::optional<PlacedStrategy> best;
    for (const std::string& schedule : schedules) {
      if (schedule == "auto" && schedules.size() > 1) continue;
      PlanInput own = input;
      own.strategy.schedule = schedule;
      auto placed = place(own, tensor, pipeline, micro_batches);
      if (placed && (!best || step_of(*placed) < step_of(*best))) best = std::move(placed);
      if (pipeline == 1) break;
    }
    if (best) found.push_back(std::move(*best));
  };
  for (const int tensor : divisors(s.devices(), s.devices_per_node)) {
    for (const int pipeline : divisors(s.devices() / tensor, s.devices())) {
      const double batch = s.global_batch() / s.accumulate * tensor * pipeline / s.devices();
      const int max_micro_batches = static_cast<int>(std::min(batch, 4096.0));
      const int samples = static_cast<int>(std::min(batch, 1e9));
      for (const int micro_batches : divisors(samples, max_micro_batches)) {
        consider(tensor, pipeline, micro_batches);
      }
    }
  }
  std::ranges::stable_sort(found, {}, step_of);
  if (std::ranges::count(schedules, "auto") > 0) search_schedules(found);
  std::ranges::stable_sort(found, {}, step_of);
  return found;
}

}  // namespace gradwire::plan
