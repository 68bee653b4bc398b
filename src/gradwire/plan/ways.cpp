#include "gradwire/plan/ways.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/plan/search.h"

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
  way.memory_by_stage = {memory_use(way.input).total()};
  way.fits = way.memory_by_stage.front() <= way.input.device.memory_bytes;
  way.step = way.time.step;
  return way;
}

bool better(const Way& a, const Way& b) {
  return std::pair(!a.fits, a.step) < std::pair(!b.fits, b.step);
}

Way zero_way(const PlanInput& input) {
  std::optional<Way> best;
  std::vector<OtherWay> all;
  for (int stage = 3; stage >= 1; --stage) {
    PlanInput own = divided(input, 1);
    own.strategy.zero_stage = stage;
    if (own.strategy.compute == ComputeType::mixed) own.strategy.codec = "none";
    Way way = way_of(fmt::format("ZeRO stage {}", stage), std::move(own));
    all.push_back({fmt::format("stage {}", stage), way.fits ? way.step : 0});
    if (!best || (way.fits && better(way, *best))) best = std::move(way);
  }
  const std::string own = fmt::format("stage {}", best->input.strategy.zero_stage);
  std::erase_if(all, [&](const OtherWay& other) { return other.what == own; });
  best->others = std::move(all);
  return std::move(*best);
}

std::vector<double> memory_by_stage(const Way& way, const pipeline::PipelineSchedule& schedule) {
  const Strategy& s = way.input.strategy;
  const std::vector<int> kept = kept_by_rank(schedule);
  const std::vector<ModelLayer> layers = with_blocks(way.input.model).layers;
  const BytesPerParameter bytes = bytes_per_parameter(s.compute, s.optimizer);
  const double states = bytes.parameter + bytes.gradient + bytes.optimizer;
  std::vector<double> memory;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < way.cut.size(); ++stage) {
    double parameters = 0, elements = 0;
    for (const std::size_t end = layer + way.cut[stage]; layer < end; ++layer) {
      parameters += static_cast<double>(layers[layer].parameters);
      elements += s.recompute ? layers[layer].outputs : layers[layer].kept;
    }
    memory.push_back(parameters * states +
                     elements * kept[stage] * s.batch / s.micro_batches * bytes_of(s.compute));
  }
  return memory;
}

/// Tries pipelines, and remembers all of them.
class PipelineWays {
 public:
  explicit PipelineWays(const PlanInput& input) : input_(input) {}

  std::optional<Way> best() {
    const int devices = input_.strategy.devices();
    const int max_stages =
        std::min(devices, static_cast<int>(with_blocks(input_.model).layers.size()));
    for (int stages = 2; stages <= max_stages; ++stages) {
      if (devices % stages != 0) continue;
      for (const int times : {1, 2, 4}) {
        for (const char* schedule : {"1f1b", "zero_bubble"})
          consider(stages, times * stages, schedule);
      }
    }
    search();
    if (best_) {
      best_->others = others();
      best_->step_in_int8 = step_in_int8(*best_);
    }
    return std::move(best_);
  }

 private:
  struct Tried {
    int stages = 0, micro_batches = 0;
    std::string schedule;
    double step = 0;  ///< 0: does not fit.
    double busy = 0;  ///< Part of it that no schedule shortens.
  };

  void consider(int stages, int micro_batches, const char* schedule) {
    PlanInput own = divided(input_, stages);
    own.strategy.schedule = schedule;
    if (std::fmod(own.strategy.batch, micro_batches) != 0) return;
    const auto placed = place(own, 1, stages, micro_batches);
    Tried tried{.stages = stages, .micro_batches = micro_batches, .schedule = schedule};
    auto way = placed ? way_of_stages(*placed) : std::nullopt;
    if (way) {
      const PhaseTimes& phases = way->time.phases;
      tried.step = way->step;
      tried.busy = phases.forward + phases.backward + phases.unequal + phases.update;
    }
    tried_.push_back(tried);
    if (way && (!best_ || way->step < best_->step)) best_ = std::move(way);
  }

  /// Returns nullopt if a stage does not fit.
  static std::optional<Way> way_of_stages(const PlacedStrategy& placed) {
    Way way{.name = fmt::format("pipeline of {} stages", placed.input.strategy.pipeline),
            .input = placed.input,
            .time = placed.time,
            .memory_by_stage = {},
            .fits = true,
            .step = placed.time.step,
            .placed = placed};
    for (const PipelineStage& stage : placed.stages.stages)
      way.cut.push_back(stage.end - stage.begin);
    way.memory_by_stage = memory_by_stage(way, run_pipeline(placed).schedule);
    if (std::ranges::max(way.memory_by_stage) > way.input.device.memory_bytes) return std::nullopt;
    return way;
  }

  /// Returns the value of Way::step_in_int8.
  static double step_in_int8(const Way& way) {
    const Strategy& s = way.input.strategy;
    if (bytes_of(s.compute) != sizeof(float) || s.pipeline > kSimulatedStages) return 0;
    constexpr std::size_t kElements = 1 << 16;
    const auto codec = value_or_throw(codec::make_codec("int8"));
    const double ratio = static_cast<double>(codec->encoded_bytes(kElements)) /
                         static_cast<double>(kElements * sizeof(float));
    RunPipeline run = run_pipeline(*way.placed);
    const double now = seconds_of(run);
    for (double& seconds : run.costs.transfers) seconds *= ratio;
    run.schedule = value_or_throw(pipeline::make_pipeline(
        s.schedule, {.ranks = s.pipeline, .micro_batches = s.micro_batches, .costs = run.costs}));
    const double step = way.step - s.accumulate * (now - seconds_of(run));
    return step < 0.98 * way.step ? step : 0;
  }

  /// Searches where a schedule without any loss would be faster than the best so far, the most
  /// promising first.
  void search() {
    std::vector<Tried> promising = tried_;
    std::erase_if(promising, [](const Tried& tried) {
      return tried.schedule != "1f1b" || tried.step == 0 || tried.stages > kSimulatedStages;
    });
    std::ranges::stable_sort(promising, {}, &Tried::step);
    for (const Tried& tried : promising) {
      if (best_ && tried.busy >= best_->step) continue;
      consider(tried.stages, tried.micro_batches, "auto");
    }
  }

  std::vector<OtherWay> others() const {
    const Strategy& s = best_->input.strategy;
    std::vector<OtherWay> found;
    std::map<int, double> by_stages;  // The fastest; 0: none fits.
    for (const Tried& tried : tried_) {
      const bool same_stages = tried.stages == s.pipeline;
      if (same_stages && tried.micro_batches == s.micro_batches && tried.schedule != s.schedule)
        found.push_back({tried.schedule, tried.step});
      if (same_stages && tried.micro_batches != s.micro_batches && tried.schedule == s.schedule)
        found.push_back({fmt::format("{} micro-batches", tried.micro_batches), tried.step});
      if (same_stages) continue;
      double& fastest = by_stages[tried.stages];
      if (tried.step > 0 && (fastest == 0 || tried.step < fastest)) fastest = tried.step;
    }
    for (const auto& [stages, step] : by_stages)
      found.push_back({fmt::format("{} stages", stages), step});
    return found;
  }

  const PlanInput& input_;
  std::vector<Tried> tried_;
  std::optional<Way> best_;
};

/// The largest loss of a step.
std::string loss_of(const Way& way) {
  const PhaseTimes& p = way.time.phases;
  const std::array<std::pair<double, const char*>, 4> losses{
      {{way.time.exposed, "waiting for gradients or parameters"},
       {p.bubble, "the pipeline's bubble"},
       {p.inside, "waiting for activations"},
       {p.unequal, "unequal stages"}}};
  const auto& [seconds, what] = *std::ranges::max_element(losses);
  if (seconds < 0.01 * way.step) return {};
  return fmt::format("; {} of it {}", seconds_text(seconds), what);
}

}  // namespace

std::vector<Way> compare_ways(const PlanInput& input) {
  const Strategy& s = input.strategy;
  if (s.devices() < 2 || s.servers > 0 || s.local_steps > 1) return {};
  std::vector<Way> ways{way_of("data parallelism", divided(input, 1)), zero_way(input)};
  if (auto way = PipelineWays(input).best()) ways.push_back(std::move(*way));
  std::ranges::stable_sort(ways, better);
  return ways;
}

std::string sentence_of(const Way& way) {
  const Strategy& s = way.input.strategy;
  const double gigabytes = std::ranges::max(way.memory_by_stage) / 1e9;
  if (!way.fits) {
    return fmt::format("{} does not fit: {:.3g} GB of {:.3g} GB", way.name, gigabytes,
                       way.input.device.memory_bytes / 1e9);
  }
  std::string name = way.name;
  if (s.pipeline > 1) name += fmt::format(" ({}, {} micro-batches)", s.schedule, s.micro_batches);
  return fmt::format("{}: {} a step, {:.3g} GB{}", name, seconds_text(way.step), gigabytes,
                     loss_of(way));
}

std::string reason_of(const Way& way) {
  std::vector<std::string> parts, too_large;
  for (const OtherWay& other : way.others) {
    const double times = other.step / way.step;
    if (other.step == 0) {
      too_large.push_back(other.what);
    } else if (times >= 2) {
      parts.push_back(fmt::format("{} {:.2g} times as long", other.what, times));
    } else if (times < 1.0005) {
      parts.push_back(fmt::format("{} as fast", other.what));
    } else {
      parts.push_back(fmt::format("{} {:.2g} % slower", other.what, 100 * (times - 1)));
    }
  }
  if (!too_large.empty()) parts.push_back(fmt::format("too large: {}", fmt::join(too_large, ", ")));
  if (way.step_in_int8 > 0) {
    parts.push_back(fmt::format("int8 activations (pipeline.codec): {} before the time to encode",
                                seconds_text(way.step_in_int8)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace gradwire::plan
