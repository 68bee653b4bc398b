#include "gradwire/emulation/served_measurement.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "gradwire/base/check.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/random.h"
#include "gradwire/emulation/emulated_pipeline.h"
#include "gradwire/emulation/served_units.h"
#include "gradwire/exchange/traced_exchange.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/servers/server.h"
#include "gradwire/servers/server_thread.h"

namespace gradwire::emulation {
namespace {

servers::Placement placement_of(const StepCase& what, int ranks) {
  return {.workers = what.beside_workers ? ranks : ranks - what.servers,
          .servers = what.servers,
          .beside_workers = what.beside_workers};
}

step::StepPlan plan_of(const workload::LayerProfile& profile, const StepCase& what,
                       step::StepPlanOptions options) {
  options.compress = false;
  step::StepPlan plan = step::plan_step(profile, options);
  const auto servers = static_cast<std::size_t>(what.servers);
  for (exchange::UnitShape& unit : plan.buckets) {
    unit.count = (unit.count + servers - 1) / servers * servers;
    unit.tensors.clear();
  }
  return plan;
}

/// One rank of a case with servers.
class ServedRun {
 public:
  ServedRun(const std::shared_ptr<Communicator>& communicator,
            const workload::LayerProfile& profile, const StepCase& what,
            const StepMeasurementOptions& options, Alarm& alarm, TraceRecorder* trace)
      : profile_(profile),
        options_(options),
        alarm_(alarm),
        trace_(trace),
        overlap_(what.overlap),
        rank_(communicator->rank()),
        plan_(plan_of(profile, what, options.plan)),
        layout_{placement_of(what, communicator->size()), what.policy, plan_.buckets} {
    GRADWIRE_CHECK(options.pairs != nullptr);
    layout_.policy.workers = layout_.placement.workers;
    servers::check(layout_.policy);
    if (!works()) return;
    std::vector<Rank> workers(static_cast<std::size_t>(layout_.placement.workers));
    std::iota(workers.begin(), workers.end(), 0);
    workers_ = communicator->subgroup(workers);
  }

  StepFigures measure() {
    ShardsInMemory shards(plan_, layout_.placement.servers);
    std::optional<servers::Server> server;
    if (serves()) server.emplace(options_.pairs, shards, server_options(), alarm_);
    if (!works()) {
      server->run();
      return {};
    }
    std::optional<servers::ServerThread> beside;
    if (server) beside.emplace(*options_.pairs, [&server] { server->run(); });
    StepFigures figures = work();
    if (beside) beside->join();
    return figures;
  }

 private:
  bool works() const { return rank_ < layout_.placement.workers; }
  bool serves() const {
    const Rank first = layout_.placement.rank_of_server(0);
    return rank_ >= first && rank_ < first + layout_.placement.servers;
  }
  /// Workers do equally many steps only if they wait for each other in each.
  bool in_step() const { return layout_.policy.has_common_steps(); }
  /// Samples are steps of one worker, which are dealt on demand. 0: workers end after a time.
  std::int64_t dealt() const {
    return in_step() ? 0 : std::int64_t{options_.steps} * layout_.placement.workers;
  }

  servers::ServerOptions server_options() const {
    return {.placement = layout_.placement,
            .policy = layout_.policy,
            .fingerprint = servers::fingerprint_of(layout_)};
  }

  EmulatedTrainingOptions training_options() {
    return {.compute = options_.compute,
            .pace = [this] { return options_.times.draw(rank_, random_); },
            // ZeRO's stage 1, with shards on other ranks.
            .policy = {.stage = 1, .ranks = 2, .overlap = overlap_}};
  }

  StepFigures work() {
    StepFigures figures{.ranks = layout_.placement.workers, .elements = plan_.elements()};
    workers_->barrier().wait();
    EmulatedTrainingOptions alone = training_options();
    alone.policy = {};
    alone.pace = nullptr;
    figures.single = duration_of(max_over_ranks(
        *workers_, seconds_of_a_step_alone(profile_, plan_, alone, options_, alarm_)));
    WorkerUnits units(plan_, layout_.placement.servers, in_step(),
                      options_.seed + static_cast<std::uint64_t>(rank_));
    auto served = std::make_unique<servers::ServedExchange>(options_.pairs, layout_);
    servers::ServedExchange& exchange = *served;
    const auto traced = exchange::traced_exchange(std::move(served), trace_);
    EmulatedTraining training(profile_, plan_, training_options(), units, *traced, alarm_, trace_);
    if (rank_ == 0 && dealt() > 0) exchange.deal(dealt(), 1);
    workers_->barrier().wait();
    in_step() ? measure_equal_steps(training, figures)
              : measure_own_pace(training, exchange, figures);
    figures.memory = units.peak_memory();
    take_report(exchange.report(), figures);
    training.finish();
    exchange.leave();
    figures.exposed = duration_of(max_over_ranks(*workers_, seconds(figures.exposed)));
    figures.bytes_per_step = max_over_ranks(*workers_, figures.bytes_per_step);
    figures.cpu_seconds = max_over_ranks(*workers_, figures.cpu_seconds);
    share_first(figures);
    return figures;
  }

  void measure_equal_steps(EmulatedTraining& training, StepFigures& figures) {
    const int warmup = std::max(options_.warmup, 1);
    const Time start = training.device().free_at();
    for (int i = 0; i < warmup; ++i) training.step();
    const double step = seconds(training.device().free_at() - start) / warmup;
    figures.steps = options_.steps > 0 ? options_.steps : steps_in_duration(step);
    measure(training, figures, [&, left = figures.steps]() mutable { return left-- > 0; });
    figures.step = duration_of(max_over_ranks(*workers_, seconds(figures.step)));
  }

  int steps_in_duration(double step) const {
    const double slowest = std::max(max_over_ranks(*workers_, step), 1e-6);
    return static_cast<int>(std::clamp(seconds(options_.duration) / slowest, 3.0, 1e4));
  }

  void measure_own_pace(EmulatedTraining& training, servers::ServedExchange& exchange,
                        StepFigures& figures) {
    const Time end = alarm_.now() + options_.duration;
    if (options_.steps == 0) {
      return measure(training, figures, [&] { return alarm_.now() < end; });
    }
    exchange.set_batches(1);
    measure(training, figures, [&] { return exchange.take(1).count > 0; });
  }

  /// Counts steps while `more` says so. Times are this worker's.
  template <class More>
  void measure(EmulatedTraining& training, StepFigures& figures, More more) {
    const std::size_t sent = options_.pairs->payload_bytes_sent();
    const double cpu = cpu_seconds_used();
    const Duration stalled = training.device().stalled();
    const Time begin = training.device().free_at();
    for (figures.steps = 0; more(); ++figures.steps) training.step();
    const int steps = std::max(figures.steps, 1);
    figures.step = (training.device().free_at() - begin) / steps;
    figures.exposed = (training.device().stalled() - stalled) / steps;
    figures.cpu_seconds = (cpu_seconds_used() - cpu) / steps;
    figures.bytes_per_step =
        static_cast<double>(options_.pairs->payload_bytes_sent() - sent) / steps;
  }

  void take_report(const servers::ServerReport& report, StepFigures& figures) {
    const double parts = static_cast<double>(plan_.buckets.size()) * layout_.placement.servers;
    const double updates = static_cast<double>(report.updates()) / parts;
    const double late = static_cast<double>(report.late()) / parts;
    const double elapsed = seconds(report.elapsed);
    StepFigures::Served& served = figures.served.emplace();
    const servers::Staleness staleness = report.staleness();
    served.staleness_mean = staleness.mean();
    served.staleness_p99 = staleness.quantile(0.99);
    served.staleness_max = staleness.max();
    served.updates_per_second = elapsed > 0 ? updates / elapsed : 0;
    served.late = updates + late > 0 ? late / (updates + late) : 0;
    served.busy = elapsed > 0 ? seconds(report.busy) / elapsed / layout_.placement.servers : 0;
    updates_ = updates;
  }

  /// The report of the worker that was done first: until then all were training.
  void share_first(StepFigures& figures) {
    const double first = -max_over_ranks(*workers_, -updates_);
    const Rank done = static_cast<Rank>(
        -max_over_ranks(*workers_, updates_ == first ? -static_cast<double>(rank_) : -1e9));
    StepFigures::Served& served = *figures.served;
    std::array<double, 3> shares{served.updates_per_second, served.late, served.busy};
    std::array<double, 3> staleness{served.staleness_mean,
                                    static_cast<double>(served.staleness_p99),
                                    static_cast<double>(served.staleness_max)};
    for (auto* values : {&shares, &staleness}) {
      workers_->broadcast({values->data(), values->size(), DataType::float64, nullptr}, done)
          .wait();
    }
    served = {.staleness_mean = staleness[0],
              .staleness_p99 = static_cast<std::int64_t>(staleness[1]),
              .staleness_max = static_cast<std::int64_t>(staleness[2]),
              .updates_per_second = shares[0],
              .late = shares[1],
              .busy = shares[2]};
    if (in_step()) return;
    // Workers take different numbers of steps: this is the mean.
    figures.step =
        duration_of(figures.ranks / std::max(served.updates_per_second, 1e-9) * (1 - served.late));
  }

  const workload::LayerProfile& profile_;
  const StepMeasurementOptions& options_;
  Alarm& alarm_;
  TraceRecorder* trace_;
  step::Overlap overlap_;
  Rank rank_;
  step::StepPlan plan_;
  servers::ServedLayout layout_;
  std::shared_ptr<Communicator> workers_;  ///< Null on a rank that only serves.
  Random random_{options_.seed * 7919 + static_cast<std::uint64_t>(rank_)};
  double updates_ = 0;  ///< Number for each unit, when this worker was done.
};

}  // namespace

StepFigures measure_served_step(const std::shared_ptr<Communicator>& communicator,
                                const workload::LayerProfile& profile, const StepCase& what,
                                const StepMeasurementOptions& options, Alarm& alarm,
                                TraceRecorder* trace) {
  return ServedRun(communicator, profile, what, options, alarm, trace).measure();
}

}  // namespace gradwire::emulation
