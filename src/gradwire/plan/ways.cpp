#include "gradwire/plan/ways.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/units.h"

namespace gradwire::plan {
namespace {

std::string seconds_text(double seconds) {
  return format_duration(Duration(std::llround(1e9 * seconds)));
}

/// The same devices and global batch, divided by replicas of `stages` devices. Measured times are
/// those of the given batch on the given replica.
PlanInput divided(const PlanInput& input, int stages) {
  PlanInput own = input;
  Strategy& s = own.strategy;
  const double batch = s.batch;
  const double devices = s.tensor * s.pipeline;
  const double global = s.global_batch();
  s.tensor = 1;
  s.pipeline = stages;
  s.micro_batches = 1;
  s.zero_stage = 0;
  s.batch = global / (s.data() * s.accumulate);
  const double work = s.batch / batch * devices / stages;
  own.measured.step *= work;
  own.model.recorded_seconds *= work;
  return own;
}

Way way_of(std::string name, PlanInput input) {
  Way way{.name = std::move(name), .input = std::move(input)};
  way.time = step_time(way.input);
  way.memory = memory_use(way.input);
  way.fits = way.memory.total() <= way.input.device.memory_bytes;
  way.step = way.time.step;
  return way;
}

bool better(const Way& a, const Way& b) {
  return std::pair(!a.fits, a.step) < std::pair(!b.fits, b.step);
}

Way zero_way(const PlanInput& input) {
  std::optional<Way> best;
  for (int stage = 3; stage >= 1; --stage) {
    PlanInput own = divided(input, 1);
    own.strategy.zero_stage = stage;
    if (own.strategy.compute == ComputeType::mixed) own.strategy.codec = "none";
    Way way = way_of(fmt::format("ZeRO stage {}", stage), std::move(own));
    if (!best || (way.fits && better(way, *best))) best = std::move(way);
  }
  return std::move(*best);
}

std::optional<Way> pipeline_way(const PlanInput& input, int stages, int micro_batches,
                                const char* schedule) {
  PlanInput own = divided(input, stages);
  own.strategy.schedule = schedule;
  const auto placed = place(own, 1, stages, micro_batches);
  if (!placed) return std::nullopt;
  Way way{.name = fmt::format("pipeline of {} stages", stages),
          .input = placed->input,
          .time = placed->time,
          .memory = placed->memory,
          .fits = true,
          .step = placed->step};
  for (const PipelineStage& stage : placed->stages.stages)
    way.cut.push_back(stage.end - stage.begin);
  return way;
}

std::optional<Way> best_pipeline(const PlanInput& input) {
  std::optional<Way> best;
  const int devices = input.strategy.devices();
  for (int stages = 2; stages <= devices; ++stages) {
    if (devices % stages != 0) continue;
    for (const int times : {1, 2, 4}) {
      for (const char* schedule : {"1f1b", "zero_bubble"}) {
        auto way = pipeline_way(input, stages, times * stages, schedule);
        if (way && (!best || better(*way, *best))) best = std::move(way);
      }
    }
  }
  return best;
}

/// The largest loss of a step.
std::string loss_of(const Way& way) {
  const PhaseTimes& p = way.time.phases;
  const std::array<std::pair<double, const char*>, 4> losses{
      {{way.time.exposed, "waiting for gradients or parameters"},
       {p.bubble, "the pipeline's bubble"},
       {p.inside, "waiting for activations"},
       {way.step - way.time.step, "unequal stages"}}};
  const auto& [seconds, what] = *std::ranges::max_element(losses);
  if (seconds < 0.01 * way.step) return {};
  return fmt::format("; {} of it {}", seconds_text(seconds), what);
}

}  // namespace

std::vector<Way> compare_ways(const PlanInput& input) {
  const Strategy& s = input.strategy;
  if (s.devices() < 2 || s.servers > 0 || s.local_steps > 1) return {};
  std::vector<Way> ways{way_of("data parallelism", divided(input, 1)), zero_way(input)};
  if (auto way = best_pipeline(input)) ways.push_back(std::move(*way));
  std::ranges::stable_sort(ways, better);
  return ways;
}

std::string sentence_of(const Way& way) {
  const Strategy& s = way.input.strategy;
  const double gigabytes = way.memory.total() / 1e9;
  if (!way.fits) {
    return fmt::format("{} does not fit: {:.3g} GB of {:.3g} GB", way.name, gigabytes,
                       way.input.device.memory_bytes / 1e9);
  }
  std::string name = way.name;
  if (s.pipeline > 1) name += fmt::format(" ({}, {} micro-batches)", s.schedule, s.micro_batches);
  return fmt::format("{}: {} a step, {:.3g} GB{}", name, seconds_text(way.step), gigabytes,
                     loss_of(way));
}

}  // namespace gradwire::plan
