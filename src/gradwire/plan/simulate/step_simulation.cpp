#include "gradwire/plan/simulate/step_simulation.h"

#include <algorithm>

namespace gradwire {
namespace {

constexpr int kWarmUp = 3;  ///< Rounds before the one that is measured.

class Run {
 public:
  Run(const LayerProfile& profile, const StepPlan& plan, const StepModel& model,
      const ExchangeModel& exchange)
      : profile_(profile),
        plan_(plan),
        model_(model),
        ready_after_(profile.layers.size()),
        jobs_(plan.buckets.size()) {
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
      ready_after_[plan.first_layer[bucket]].push_back(bucket);
      stages_.push_back(bucket_stages(plan.buckets[bucket], exchange));
    }
  }

  SimulatedStep measure() {
    const int round = model_.local_steps ? static_cast<int>(model_.local_steps->round()) : 1;
    for (int i = 0; i < kWarmUp * round; ++i) step();
    const double begin = now_, stalled = stalled_, port = traffic_.port_busy();
    const double in_flight = traffic_.in_flight();
    for (int i = 0; i < round; ++i) step();
    SimulatedStep result;
    const double passes = model_.accumulate;
    for (const ProfileLayer& layer : profile_.layers) {
      result.forward += passes * model_.compute * layer.forward;
      result.backward += passes * model_.compute * layer.backward;
    }
    result.single = result.forward + result.backward + model_.update;
    result.step = (now_ - begin) / round;
    const double waited = (stalled_ - stalled) / round;
    result.exposed = std::max(waited, result.step - result.single);
    result.in_flight = (traffic_.in_flight() - in_flight) / round;
    result.port = (traffic_.port_busy() - port) / round;
    return result;
  }

 private:
  void step() {
    launched_ = false;
    for (int pass = 1; pass <= model_.accumulate; ++pass) {
      forward(pass == 1 && !model_.local_steps);
      backward(pass == model_.accumulate && !model_.local_steps);
    }
    if (model_.overlap != Overlap::full && !model_.local_steps) collect_all();
    compute(model_.update);
    ++steps_;
    if (model_.local_steps) average_parameters();
  }

  void average_parameters() {
    const auto begins = model_.local_steps->begins_after(steps_);
    const auto ends = model_.local_steps->ends_after(steps_);
    for (std::size_t bucket = 0; begins && bucket < jobs_.size(); ++bucket) {
      if (plan_.fragment_of[bucket] == *begins) launch(bucket, 0);
    }
    for (std::size_t bucket = 0; ends && bucket < jobs_.size(); ++bucket) {
      if (plan_.fragment_of[bucket] == *ends) collect(bucket);
    }
  }

  void launch(std::size_t bucket, int priority) {
    for (const auto& stages : stages_[bucket])
      jobs_[bucket].push_back(traffic_.start(priority, stages));
  }

  void compute(double seconds) {
    now_ += seconds * model_.slowest_host;
    traffic_.advance(now_);
  }

  void forward(bool waits) {
    for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
      if (waits) {
        for (const std::size_t bucket : plan_.needs[layer]) collect(bucket);
      }
      compute(profile_.layers[layer].forward * model_.compute);
    }
  }

  void backward(bool sends) {
    for (std::size_t layer = profile_.layers.size(); layer-- > 0;) {
      compute(profile_.layers[layer].backward * model_.compute);
      if (sends && model_.overlap != Overlap::none) complete(layer);
    }
    if (!sends || model_.overlap != Overlap::none) return;
    for (std::size_t layer = profile_.layers.size(); layer-- > 0;) complete(layer);
  }

  void complete(std::size_t layer) {
    for (const std::size_t bucket : ready_after_[layer]) {
      if (!launched_) collect_all();  // Buckets of the previous step that forward did not need.
      launched_ = true;
      launch(bucket, static_cast<int>(bucket));
    }
  }

  void collect(std::size_t bucket) {
    const double before = now_;
    for (const std::size_t job : jobs_[bucket]) now_ = traffic_.finish(job);
    stalled_ += now_ - before;
    jobs_[bucket].clear();
  }

  void collect_all() {
    for (std::size_t bucket = 0; bucket < jobs_.size(); ++bucket) collect(bucket);
  }

  const LayerProfile& profile_;
  const StepPlan& plan_;
  const StepModel& model_;
  std::vector<std::vector<std::size_t>> ready_after_;           ///< By layer: completed buckets.
  std::vector<std::vector<std::vector<TrafficStage>>> stages_;  ///< By bucket, of its pieces.
  std::vector<std::vector<std::size_t>> jobs_;                  ///< By bucket: in flight.
  Traffic traffic_;
  double now_ = 0, stalled_ = 0;
  bool launched_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace

SimulatedStep simulate_step(const LayerProfile& profile, const StepPlan& plan,
                            const StepModel& model, const ExchangeModel& exchange) {
  return Run(profile, plan, model, exchange).measure();
}

}  // namespace gradwire
