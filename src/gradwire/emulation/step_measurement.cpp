#include "gradwire/emulation/step_measurement.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/emulation/emulated_training.h"
#include "gradwire/emulation/served_measurement.h"
#include "gradwire/exchange/auto_exchange.h"
#include "gradwire/exchange/communicator_exchange.h"

namespace gradwire::emulation {
namespace {

/// Smaller layers are root units of ZeRO stage 3 (ZeroOptions::min_block_elements).
constexpr std::size_t kMinBlockElements = 10'000;

/// Measures a case on one rank.
class StepRun {
 public:
  StepRun(const std::shared_ptr<Communicator>& communicator, const workload::LayerProfile& profile,
          const StepCase& what, const StepMeasurementOptions& options, Alarm& alarm,
          TraceRecorder* trace)
      : communicator_(communicator),
        profile_(profile),
        what_(what),
        options_(options),
        alarm_(alarm),
        trace_(trace),
        plan_(plan_units()) {}

  StepFigures measure() {
    StepFigures figures{.ranks = communicator_->size(), .elements = plan_.elements()};
    measure_single(figures);
    measure_steps(figures);
    figures.bytes_per_step = max_over_ranks(figures.bytes_per_step);
    figures.cpu_seconds = max_over_ranks(figures.cpu_seconds);
    return figures;
  }

 private:
  step::StepPlan plan_units() const {
    step::StepPlanOptions options = options_.plan;
    options.compress = what_.codec != "none" && what_.zero_stage == 0;
    if (local()) return step::plan_local_steps(profile_, what_.fragments, options);
    if (what_.zero_stage == 0) return step::plan_step(profile_, options);
    step::StepPlan plan = what_.zero_stage == 3
                              ? step::plan_blocks(profile_, kMinBlockElements, options)
                              : step::plan_step(profile_, options);
    // Sharded units are compressed as a whole.
    for (exchange::UnitShape& unit : plan.buckets) {
      unit.skip_compression = unit.count < options_.plan.codec_min_elements;
      unit.count = padded(unit.count);
      unit.tensors.clear();
    }
    return plan;
  }

  /// A multiple of the number of ranks.
  std::size_t padded(std::size_t count) const {
    const auto ranks = static_cast<std::size_t>(communicator_->size());
    return (count + ranks - 1) / ranks * ranks;
  }

  bool local() const { return what_.local_steps > 1; }

  EmulatedTrainingOptions training_options() const {
    EmulatedTrainingOptions options{
        .compute = options_.compute,
        .accumulate = what_.accumulate,
        .policy = {.stage = what_.zero_stage,
                   .ranks = communicator_->size(),
                   .overlap = what_.overlap,
                   .prefetch_units = static_cast<std::size_t>(options_.prefetch),
                   .prefetch_elements = 0}};
    if (local()) options.local_steps.emplace(what_.local());
    return options;
  }

  UnitsInMemory units(int stage, int ranks, TraceRecorder* trace) const {
    const Rank rank = communicator_->rank();
    return {plan_, stage, rank, ranks, options_.seed + static_cast<std::uint64_t>(rank), trace};
  }

  exchange::ExchangeOptions exchange_options() const {
    exchange::ExchangeOptions options = options_.exchange;
    options.codec = what_.codec;
    options.sharded = what_.zero_stage > 0;
    return options;
  }

  /// Steps without communication: those of one rank.
  void measure_single(StepFigures& figures) {
    communicator_->barrier().wait();
    EmulatedTrainingOptions options = training_options();
    options.policy = {};
    options.local_steps.reset();
    const double single = seconds_of_a_step_alone(profile_, plan_, options, options_, alarm_);
    figures.single = duration_of(max_over_ranks(single));
  }

  void measure_steps(StepFigures& figures) {
    const int warmup = whole_rounds(std::max(options_.warmup, 1));
    UnitsInMemory held = units(what_.zero_stage, communicator_->size(), trace_);
    const auto exchange =
        exchange::make_exchange(communicator_, plan_.buckets, exchange_options(), trace_);
    EmulatedTraining run(profile_, plan_, training_options(), held, *exchange, alarm_, trace_);
    complete_auto_trial(run);
    communicator_->barrier().wait();
    const std::size_t sent = communicator_->payload_bytes_sent();
    const Time start = run.device().free_at();
    for (int i = 0; i < warmup; ++i) run.step();
    figures.steps = measured_steps(seconds(run.device().free_at() - start) / warmup);
    const double cpu = cpu_seconds_used();
    const Duration stalled = run.device().stalled();
    const Time begin = run.device().free_at();
    for (int i = 0; i < figures.steps; ++i) run.step();
    figures.step =
        duration_of(max_over_ranks(seconds(run.device().free_at() - begin) / figures.steps));
    figures.exposed =
        duration_of(max_over_ranks(seconds(run.device().stalled() - stalled) / figures.steps));
    figures.cpu_seconds = (cpu_seconds_used() - cpu) / figures.steps;
    run.finish();
    figures.memory = held.peak_memory();
    figures.bytes_per_step = communicator_->traits().counts_bytes
                                 ? static_cast<double>(communicator_->payload_bytes_sent() - sent) /
                                       (warmup + figures.steps)
                                 : -1;
  }

  /// Completes the trial of `auto` before the measurement.
  void complete_auto_trial(EmulatedTraining& run) const {
    if (!what_.codec.starts_with("auto")) return;
    // The trial counts averagings, of which there is one per round.
    const int trial = exchange::steps_until_decided(exchange_options()) * what_.local_steps;
    for (int i = 0; i < trial; ++i) run.step();
    run.finish();
  }

  /// Rounds up to whole rounds, in which every fragment is sent equally often.
  int whole_rounds(int steps) const {
    return (steps + what_.local_steps - 1) / what_.local_steps * what_.local_steps;
  }

  /// Number of measured steps; the same on all ranks.
  int measured_steps(double step_seconds) const {
    if (options_.steps > 0) return whole_rounds(options_.steps);
    const double wanted = seconds(options_.duration) / std::max(max_over_ranks(step_seconds), 1e-6);
    return whole_rounds(static_cast<int>(std::clamp(wanted, 3.0, 1e4)));
  }

  /// Maximum over all ranks.
  double max_over_ranks(double value) const {
    communicator_->all_reduce({&value, 1, DataType::float64, nullptr}, ReduceOp::max).wait();
    return value;
  }

  std::shared_ptr<Communicator> communicator_;
  const workload::LayerProfile& profile_;
  const StepCase& what_;
  const StepMeasurementOptions& options_;
  Alarm& alarm_;
  TraceRecorder* trace_;
  step::StepPlan plan_;
};

}  // namespace

double seconds_of_a_step_alone(const workload::LayerProfile& profile, const step::StepPlan& plan,
                               const EmulatedTrainingOptions& training,
                               const StepMeasurementOptions& options, Alarm& alarm) {
  UnitsInMemory units(plan, 0, 0, 1, options.seed);
  const auto exchange = exchange::local_exchange();
  EmulatedTraining alone(profile, plan, training, units, *exchange, alarm);
  const Time begin = alone.device().free_at();
  for (int i = 0; i < options.single_steps; ++i) alone.step();
  return seconds(alarm.now() - begin) / options.single_steps;
}

double StepFigures::efficiency() const {
  if (step <= Duration::zero()) return 1;
  return std::min(1.0, seconds(single) / seconds(step));
}

double StepFigures::all_reduce_bytes() const {
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(elements * sizeof(float));
}

StepFigures measure_step(const std::shared_ptr<Communicator>& communicator,
                         const workload::LayerProfile& profile, const StepCase& what,
                         const StepMeasurementOptions& options, Alarm& alarm,
                         TraceRecorder* trace) {
  if (what.servers > 0) {
    return measure_served_step(communicator, profile, what, options, alarm, trace);
  }
  return StepRun(communicator, profile, what, options, alarm, trace).measure();
}

step::LocalStepsConfig StepCase::local() const {
  return {.steps = local_steps,
          .fragments = fragments,
          .overlap_steps = overlap_steps,
          .codec = codec,
          .enabled = local_steps > 1};
}

double efficiency_bound(const StepCase& what, const StepFigures& figures, double bytes_per_second) {
  const double communication = figures.bytes_per_step / bytes_per_second;
  if (what.local_steps > 1) {
    const double step = seconds(figures.single);
    const double shows = std::max(0.0, communication - step::hiding_share(what.local()) * step);
    return step / std::max(step + shows, 1e-9);
  }
  const double pass = seconds(figures.single) / what.accumulate;
  const double others = pass * (what.accumulate - 1);
  return (others + pass) / std::max(others + std::max(pass, communication), 1e-9);
}

}  // namespace gradwire::emulation
