#include "gradwire/plan/place/degrees.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/error.h"

namespace gradwire::plan {
namespace {

std::vector<int> divisors(int number, int most) {
  std::vector<int> found;
  for (int d = 1; d <= std::min(number, most); ++d) {
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
                              .output_bytes = layer.outputs * samples * bytes,
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

std::optional<PlacedStrategy> place(const PlanInput& input, int tensor, int pipeline,
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
  if (placed.memory.total() > input.device.memory_bytes) return std::nullopt;
  placed.time = step_time(placed.input);
  const PipelineProblem problem = pipeline_of(placed.input, placed.time);
  const auto stages = place_pipeline(problem);
  if (!stages || static_cast<int>(stages->stages.size()) != pipeline) return std::nullopt;
  placed.stages = *stages;
  double slowest = 0, all = 0;
  for (const PipelineStage& stage : stages->stages) {
    slowest = std::max(slowest, stage.seconds);
    all += stage.seconds;
  }
  placed.imbalance = all > 0 ? slowest * pipeline / all : 1;
  const PhaseTimes& phases = placed.time.phases;
  placed.step = placed.time.step +
                (placed.imbalance - 1) * (phases.forward + phases.backward + phases.bubble);
  placed.samples_per_second = own.global_batch() / placed.step;
  return placed;
}

std::vector<PlacedStrategy> search_degrees(const PlanInput& input) {
  const Strategy& s = input.strategy;
  std::vector<PlacedStrategy> found;
  for (const int tensor : divisors(s.devices(), s.devices_per_node)) {
    for (const int pipeline : divisors(s.devices() / tensor, s.devices())) {
      const double batch = s.global_batch() / s.accumulate * tensor * pipeline / s.devices();
      const int most = static_cast<int>(std::min(batch, 4096.0));
      for (const int micro_batches : divisors(static_cast<int>(batch), most)) {
        if (auto placed = place(input, tensor, pipeline, micro_batches))
          found.push_back(std::move(*placed));
      }
    }
  }
  std::ranges::stable_sort(found, {}, &PlacedStrategy::step);
  return found;
}

}  // namespace gradwire::plan
