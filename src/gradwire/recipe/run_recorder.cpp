#include "gradwire/recipe/run_recorder.h"

#include <chrono>

#include <fmt/format.h>

namespace gradwire {

void RunRecorder::end_epoch(Time now, bool whole) {
  if (whole) epochs_.push_back(std::chrono::duration<double>(now - begin_).count());
}

void RunRecorder::step(std::int64_t step, double loss, const StepTimes& times) {
  log_.add({.step = step,
            .loss = loss,
            .compute = times.compute,
            .exposed = times.exposed,
            .data = times.data});
}

RunRecord RunRecorder::record(const TrainConfig& config, const TrainingSummary& summary) const {
  return {.strategy = strategy_of(config, summary.ranks),
          .summary = summary,
          .steps = log_.steps(),
          .every = log_.every(),
          .epoch_seconds = epochs_};
}

std::string strategy_of(const TrainConfig& config, int ranks) {
  if (ranks == 1) return "1 rank";
  if (config.zero.stage > 0) return fmt::format("ZeRO-{} x{}", config.zero.stage, ranks);
  return fmt::format("{} x{}", config.local_steps.enabled ? "local SGD" : "DDP", ranks);
}

}  // namespace gradwire
