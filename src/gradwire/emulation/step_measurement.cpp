#include "gradwire/emulation/step_measurement.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gradwire/base/cpu_time.h"
#include "gradwire/emulation/emulated_zero.h"
#include "gradwire/gradient/auto_averager.h"
#include "gradwire/gradient/coded_shard_exchange.h"
#include "gradwire/gradient/trace_averager.h"

namespace gradwire {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// All objects of a case on one rank.
class StepRun {
 public:
  StepRun(const std::shared_ptr<Communicator>& communicator, const LayerProfile& profile,
          const StepCase& what, const StepMeasurementOptions& options, Alarm& alarm,
          TraceRecorder* trace)
      : communicator_(communicator),
        profile_(profile),
        what_(what),
        options_(options),
        alarm_(alarm),
        trace_(trace),
        plan_(local() ? plan_local_steps(profile, what.fragments, plan_options())
                      : plan_step(profile, plan_options())),
        gradients_(plan_.buckets, options.seed + static_cast<std::uint64_t>(communicator->rank())),
        units_(zero_units(plan_, communicator->rank(), communicator->size())) {}

  StepFigures measure() {
    StepFigures figures{.ranks = communicator_->size(), .elements = plan_.elements()};
    measure_single(figures);
    measure_steps(figures);
    figures.bytes_per_step = max_over_ranks(figures.bytes_per_step);
    figures.cpu_seconds = max_over_ranks(figures.cpu_seconds);
    return figures;
  }

 private:
  StepPlanOptions plan_options() const {
    StepPlanOptions plan = options_.plan;
    // Sharded units are compressed as a whole.
    plan.compress = what_.codec != "none" && what_.zero_stage == 0;
    return plan;
  }

  bool local() const { return what_.local_steps > 1; }

  EmulatedTraining training(Averager* averager) {
    EmulatedTrainingOptions options{
        .compute = options_.compute, .accumulate = what_.accumulate, .overlap = what_.overlap};
    if (local()) options.local_steps.emplace(what_.local());
    return {profile_, plan_, options, gradients_, averager, alarm_, averager ? trace_ : nullptr};
  }

  std::unique_ptr<Averager> averager() const {
    return trace_averager(make_averager(communicator_, plan_.buckets, averager_options()), trace_);
  }

  AveragerOptions averager_options() const {
    AveragerOptions options = options_.averager;
    options.codec = what_.codec;
    return options;
  }

  std::vector<BucketShape> unit_shapes() const {
    std::vector<BucketShape> shapes;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const std::size_t count = units_.count(unit);
      shapes.push_back(
          {.count = count, .skip_compression = count < options_.plan.codec_min_elements});
    }
    return shapes;
  }

  /// Steps that communicate, with the objects they communicate through.
  struct Communicating {
    std::unique_ptr<Averager> averager;
    std::unique_ptr<ShardExchange> exchange;
    std::unique_ptr<EmulatedSteps> steps;
  };

  Communicating communicating() {
    Communicating run;
    if (what_.zero_stage == 0) {
      run.averager = averager();
      run.steps = std::make_unique<EmulatedTraining>(training(run.averager.get()));
      return run;
    }
    const EmulatedZeroOptions options{
        .compute = options_.compute, .stage = what_.zero_stage, .prefetch = options_.prefetch};
    run.exchange = coded_shard_exchange(communicator_, unit_shapes(), averager_options(),
                                        {.gathers_in_any_order = true, .trace = trace_});
    run.steps =
        std::make_unique<EmulatedZero>(profile_, units_, options, *run.exchange, alarm_, trace_);
    return run;
  }

  void measure_single(StepFigures& figures) {
    communicator_->barrier().wait();
    EmulatedTraining alone = training(nullptr);
    const Time begin = alone.device().free_at();
    for (int i = 0; i < options_.single_steps; ++i) alone.step();
    figures.single =
        duration_of(max_over_ranks(seconds(alarm_.now() - begin) / options_.single_steps));
  }

  void measure_steps(StepFigures& figures) {
    const int warmup = whole_rounds(std::max(options_.warmup, 1));
    const Communicating holder = communicating();
    EmulatedSteps& run = *holder.steps;
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
    figures.memory = run.memory();
    figures.bytes_per_step =
        static_cast<double>(communicator_->payload_bytes_sent() - sent) / (warmup + figures.steps);
  }

  /// Completes the trial of `auto` before the measurement.
  void complete_auto_trial(EmulatedSteps& run) const {
    if (!what_.codec.starts_with("auto")) return;
    // The trial counts averagings, of which there is one per round.
    const int trial = steps_until_decided(averager_options()) * what_.local_steps;
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
  const LayerProfile& profile_;
  const StepCase& what_;
  const StepMeasurementOptions& options_;
  Alarm& alarm_;
  TraceRecorder* trace_;
  StepPlan plan_;
  EmulatedGradients gradients_;
  ZeroUnits units_;
};

}  // namespace

double StepFigures::efficiency() const {
  if (step <= Duration::zero()) return 1;
  return std::min(1.0, seconds(single) / seconds(step));
}

double StepFigures::all_reduce_bytes() const {
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(elements * sizeof(float));
}

StepFigures measure_step(const std::shared_ptr<Communicator>& communicator,
                         const LayerProfile& profile, const StepCase& what,
                         const StepMeasurementOptions& options, Alarm& alarm,
                         TraceRecorder* trace) {
  return StepRun(communicator, profile, what, options, alarm, trace).measure();
}

LocalStepsConfig StepCase::local() const {
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
    const double shows = std::max(0.0, communication - hiding_share(what.local()) * step);
    return step / std::max(step + shows, 1e-9);
  }
  const double pass = seconds(figures.single) / what.accumulate;
  const double others = pass * (what.accumulate - 1);
  return (others + pass) / std::max(others + std::max(pass, communication), 1e-9);
}

}  // namespace gradwire
