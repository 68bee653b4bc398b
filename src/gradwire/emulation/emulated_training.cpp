#include "gradwire/emulation/emulated_training.h"

#include <algorithm>

namespace gradwire {

EmulatedTraining::EmulatedTraining(const LayerProfile& profile, const StepPlan& plan,
                                   const EmulatedTrainingOptions& options,
                                   EmulatedGradients& gradients, Averager* averager, Alarm& alarm,
                                   TraceRecorder* trace)
    : profile_(profile),
      plan_(plan),
      options_(options),
      gradients_(gradients),
      averager_(averager),
      trace_(trace),
      device_(alarm),
      ready_after_(profile.layers.size()),
      in_flight_(plan.buckets.size()) {
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
    ready_after_[plan.first_layer[bucket]].push_back(bucket);
}

Duration EmulatedTraining::share(double of_step) const {
  return Duration(
      static_cast<Duration::rep>(of_step * static_cast<double>(options_.compute.count())));
}

void EmulatedTraining::step() {
  const TraceStep traced(trace_, steps_);
  launched_ = false;
  for (int pass = 1; pass <= options_.accumulate; ++pass) {
    forward(pass == 1 && !options_.local_steps);
    backward(pass == options_.accumulate);
  }
  if (options_.overlap != Overlap::full && !options_.local_steps) collect_all();
  ++steps_;
  if (options_.local_steps && averager_ != nullptr) average_parameters();
}

void EmulatedTraining::forward(bool waits) {
  const TraceScope traced(trace_, TraceKind::forward);
  for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
    if (waits) {
      for (const std::size_t bucket : plan_.needs[layer]) collect(bucket);
    }
    device_.compute(share(profile_.layers[layer].forward));
  }
}

void EmulatedTraining::backward(bool sends) {
  const TraceScope traced(trace_, TraceKind::backward);
  for (std::size_t layer = profile_.layers.size(); layer-- > 0;) {
    device_.compute(share(profile_.layers[layer].backward));
    if (sends && options_.overlap != Overlap::none) complete(layer);
  }
  if (!sends || options_.overlap != Overlap::none) return;
  for (std::size_t layer = profile_.layers.size(); layer-- > 0;) complete(layer);
}

/// Called when the gradients of a layer, and so of some buckets, are complete.
void EmulatedTraining::complete(std::size_t layer) {
  for (const std::size_t bucket : ready_after_[layer]) {
    // Without communication, or with local steps, the optimizer steps at once.
    if (averager_ == nullptr || options_.local_steps) {
      step_optimizer(bucket);
    } else {
      launch(bucket);
    }
  }
}

void EmulatedTraining::launch(std::size_t bucket) {
  if (!launched_) collect_all();  // Buckets of the step before that forward did not wait for.
  launched_ = true;
  start(bucket, static_cast<int>(bucket));
}

void EmulatedTraining::start(std::size_t bucket, int priority) {
  averager_->start(bucket, gradients_.lend(bucket), priority);
  in_flight_[bucket] = true;
  ++in_flight_count_;
}

/// Called after each step, as LocalSgd::step().
void EmulatedTraining::average_parameters() {
  const auto of = [this](std::size_t bucket) { return plan_.fragment_of[bucket]; };
  if (const auto begins = options_.local_steps->begins_after(steps_)) {
    for (std::size_t bucket = 0; bucket < in_flight_.size(); ++bucket) {
      if (of(bucket) != *begins) continue;
      step_optimizer(bucket);  // Stands for the difference from the last common parameters.
      start(bucket, 0);
    }
  }
  if (const auto ends = options_.local_steps->ends_after(steps_)) {
    for (std::size_t bucket = 0; bucket < in_flight_.size(); ++bucket) {
      if (of(bucket) == *ends) collect(bucket);
    }
  }
}

void EmulatedTraining::collect(std::size_t bucket) {
  if (!in_flight_[bucket]) return;
  const bool waits = !averager_->done(bucket);
  averager_->wait(bucket);
  if (waits) device_.resume();
  in_flight_[bucket] = false;
  step_optimizer(bucket);
  if (--in_flight_count_ == 0) averager_->end_step();
}

void EmulatedTraining::collect_all() {
  for (std::size_t bucket = 0; bucket < in_flight_.size(); ++bucket) collect(bucket);
}

}  // namespace gradwire
