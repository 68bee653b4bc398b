#include "gradwire/plan/predict/pipeline_time.h"

#include <algorithm>
#include <cmath>

#include "gradwire/pipeline/catalogue.h"

namespace gradwire::plan {
namespace {

/// Passes that are simulated: the mean of the second half counts.
constexpr int kPasses = 4;
/// Micro-batches per rank, up to which all are simulated.
constexpr int kSimulated = 6;

/// The schedule with all of its micro-batches.
PipelineTime simulated(const PipelineRun& run) {
  pipeline::PipelineOptions options{.ranks = run.ranks, .micro_batches = run.micro_batches};
  const int chunks = pipeline::chunks_of(run.schedule, options);
  options.costs = pipeline::divided_costs(run.rank, run.ranks, run.ranks * chunks);
  options.costs.transfer = run.transfer;
  options.costs.latency = run.latency;
  const auto schedule = value_or_throw(pipeline::make_pipeline(run.schedule, options));
  const double seconds = simulate(schedule, options.costs, kPasses).step_seconds;
  options.costs.transfer = options.costs.latency = 0;
  const double ideal = simulate(schedule, options.costs, kPasses).step_seconds;
  const double busy =
      run.micro_batches * (run.rank.forward + run.rank.of(pipeline::Compute::backward));
  return {.bubble = std::max(0.0, ideal - busy),
          .transfers = std::max(0.0, seconds - ideal),
          .kept = static_cast<double>(std::ranges::max(kept_by_rank(schedule))) / chunks};
}

/// A pass has a beginning and an end, and a period for each micro-batch between them.
PipelineTime extrapolated(PipelineRun run) {
  const int all = run.micro_batches;
  const int few = kSimulated * run.ranks + all % run.ranks;
  if (all <= few + run.ranks) return simulated(run);
  run.micro_batches = few;
  const PipelineTime before = simulated(run);
  run.micro_batches = few + run.ranks;
  const PipelineTime after = simulated(run);
  const double further = static_cast<double>(all - few) / run.ranks;
  const auto line = [&](double PipelineTime::*part) {
    return std::max(0.0, before.*part + further * (after.*part - before.*part));
  };
  return {.bubble = line(&PipelineTime::bubble),
          .transfers = line(&PipelineTime::transfers),
          .kept = line(&PipelineTime::kept)};
}

/// Equal ratios give equal keys, however large the model.
double rounded(double ratio) {
  return static_cast<double>(static_cast<float>(ratio));
}

}  // namespace

PipelineTime PipelineTimes::of(const PipelineRun& run) {
  const double unit = run.rank.forward;
  const Key key{.schedule = run.schedule,
                .ranks = run.ranks,
                .micro_batches = run.micro_batches,
                .input = rounded(run.rank.backward_input / unit),
                .weight = rounded(run.rank.backward_weight / unit),
                .transfer = rounded(run.transfer / unit),
                .latency = rounded(run.latency / unit)};
  const auto [found, added] = times_.try_emplace(key);
  if (added) {
    found->second = extrapolated({.schedule = run.schedule,
                                  .ranks = run.ranks,
                                  .micro_batches = run.micro_batches,
                                  .rank = {1, key.input, key.weight},
                                  .transfer = key.transfer,
                                  .latency = key.latency});
  }
  const PipelineTime& time = found->second;
  return {.bubble = time.bubble * unit, .transfers = time.transfers * unit, .kept = time.kept};
}

}  // namespace gradwire::plan
