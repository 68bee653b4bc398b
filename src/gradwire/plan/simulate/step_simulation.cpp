#include "gradwire/plan/simulate/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/emulation/emulated_training.h"

namespace gradwire::plan {
namespace {

constexpr int kWarmUp = 3;  ///< Rounds before the one that is measured.

/// Virtual time: it passes for the network's traffic when somebody waits.
class TrafficAlarm final : public emulation::Alarm {
 public:
  explicit TrafficAlarm(Traffic& traffic) : traffic_(traffic) {}

  Time now() const override { return Time(duration_of(traffic_.now())); }
  void await(Time time) override {
    traffic_.advance(std::max(traffic_.now(), seconds(time.time_since_epoch())));
  }

 private:
  Traffic& traffic_;
};

class SimulatedWork final : public WorkState {
 public:
  SimulatedWork(Traffic& traffic, std::vector<std::size_t> jobs)
      : traffic_(traffic), jobs_(std::move(jobs)) {}

  bool done() override {
    return std::ranges::all_of(jobs_, [this](std::size_t job) { return traffic_.done(job); });
  }
  void wait() override {
    for (const std::size_t job : jobs_) traffic_.finish(job);
  }
  void on_done(std::function<void(const Work&)> callback) override { callback(handle()); }

 private:
  Traffic& traffic_;
  std::vector<std::size_t> jobs_;
};

/// Exchanges of units that take the time of their traffic.
class SimulatedExchange final : public exchange::Exchange {
 public:
  SimulatedExchange(Traffic& traffic, const std::vector<UnitTraffic>& units)
      : traffic_(traffic), units_(units) {}

  Work all_reduce(std::size_t unit, LentSpan, int priority) override {
    return start(units_[unit].reduction, priority);
  }
  Work reduce_scatter(std::size_t unit, LentSpan, LentSpan, int priority) override {
    return start(units_[unit].reduction, priority);
  }
  Work all_gather(std::size_t unit, LentConstSpan, LentSpan, int priority) override {
    return start(units_[unit].gather, priority);
  }
  exchange::ExchangeTraits traits() const override { return {}; }
  std::string describe() const override { return "simulated"; }

 private:
  Work start(const std::vector<std::vector<TrafficStage>>& stages, int priority) {
    std::vector<std::size_t> jobs;
    for (const auto& job : stages) jobs.push_back(traffic_.start(priority, job));
    return Work(std::make_shared<SimulatedWork>(traffic_, std::move(jobs)));
  }

  Traffic& traffic_;
  const std::vector<UnitTraffic>& units_;
};

/// Units without memory.
class SimulatedUnits final : public emulation::EmulatedUnits {
 public:
  explicit SimulatedUnits(const step::StepPlan& plan) : plan_(plan) {}

  Gradients gradients(std::size_t unit) override {
    return {.whole = {.count = plan_.buckets[unit].count}};
  }
  void reduced(std::size_t) override {}
  bool step(std::size_t) override { return true; }
  Parameters parameters(std::size_t) override { return {}; }

 private:
  const step::StepPlan& plan_;
};

emulation::EmulatedTrainingOptions options_of(const StepModel& model) {
  return {.compute = duration_of(model.compute * model.slowest_host),
          .update = duration_of(model.update * model.slowest_host),
          .accumulate = model.accumulate,
          .policy = model.policy,
          .local_steps = model.local_steps};
}

}  // namespace

SimulatedStep simulate_step(const workload::LayerProfile& profile, const step::StepPlan& plan,
                            StepModel model, const ExchangeModel& exchange) {
  model.policy.ranks = exchange.ranks;
  std::vector<UnitTraffic> traffic;
  for (const exchange::UnitShape& unit : plan.buckets)
    traffic.push_back(unit_traffic(unit, model.policy.stage, exchange));
  return simulate_step(profile, plan, model, traffic);
}

SimulatedStep simulate_step(const workload::LayerProfile& profile, const step::StepPlan& plan,
                            const StepModel& model, const std::vector<UnitTraffic>& units_traffic) {
  Traffic traffic;
  TrafficAlarm alarm(traffic);
  SimulatedExchange network(traffic, units_traffic);
  SimulatedUnits units(plan);
  emulation::EmulatedTraining training(profile, plan, options_of(model), units, network, alarm);
  const int round = model.local_steps ? static_cast<int>(model.local_steps->round()) : 1;
  for (int i = 0; i < kWarmUp * round; ++i) training.step();
  const Time begin = training.device().free_at();
  const Duration stalled = training.device().stalled();
  const double port = traffic.port_busy(), in_flight = traffic.in_flight();
  for (int i = 0; i < round; ++i) training.step();
  SimulatedStep result;
  for (const workload::ProfileLayer& layer : profile.layers) {
    result.forward += model.accumulate * model.compute * layer.forward;
    result.backward += model.accumulate * model.compute * layer.backward;
  }
  result.single = result.forward + result.backward + model.update;
  result.step = seconds(training.device().free_at() - begin) / round;
  const double waited = seconds(training.device().stalled() - stalled) / round;
  result.exposed = std::max(waited, result.step - result.single);
  result.in_flight = (traffic.in_flight() - in_flight) / round;
  result.port = (traffic.port_busy() - port) / round;
  return result;
}

}  // namespace gradwire::plan
