#include "gradwire/plan/simulate/traffic.h"

#include <algorithm>
#include <utility>

namespace gradwire::plan {
namespace {

/// Stages of less than that are not simulated: rounding errors.
constexpr double kNothing = 1e-12;

}  // namespace

std::size_t Traffic::start(int priority, std::vector<TrafficStage> stages) {
  jobs_.push_back({priority, std::move(stages)});
  ++active_;
  begin_stage(jobs_.size() - 1);
  return jobs_.size() - 1;
}

void Traffic::begin_stage(std::size_t job) {
  Job& one = jobs_[job];
  while (one.stage < one.stages.size() && one.stages[one.stage].seconds <= kNothing) ++one.stage;
  if (one.stage == one.stages.size()) {
    --active_;
    return;
  }
  const TrafficStage& stage = one.stages[one.stage];
  if (stage.kind == TrafficStage::processor) {
    waiting_.insert(std::ranges::upper_bound(waiting_, job), job);
    return;
  }
  network_.start({.id = job,
                  .from = 0,
                  .to = 1,
                  .priority = one.priority,
                  .seconds = stage.seconds,
                  .port = std::min(1.0, stage.port_seconds / stage.seconds)},
                 now_);
}

void Traffic::end_stage(std::size_t job) {
  ++jobs_[job].stage;
  begin_stage(job);
}

bool Traffic::goes_before(std::size_t job, std::size_t other) const {
  const Job& a = jobs_[job];
  const Job& b = jobs_[other];
  return a.priority > b.priority || (a.priority == b.priority && a.stage > b.stage);
}

/// Gives the codec thread its next task, if it has none.
void Traffic::choose_task() {
  if (coding_ != kNone || waiting_.empty()) return;
  const auto next = std::ranges::min_element(
      waiting_, [this](std::size_t job, std::size_t other) { return goes_before(job, other); });
  coding_ = *next;
  coding_ends_ = now_ + jobs_[coding_].stages[jobs_[coding_].stage].seconds;
  waiting_.erase(next);
}

double Traffic::next_end() const {
  return std::min(network_.next_end(), coding_ends_);
}

/// Ends the stage that ends next.
void Traffic::end_next() {
  const double end = next_end();
  if (network_.next_end() <= coding_ends_) {
    const std::size_t job = network_.end_next();
    pass(end);
    end_stage(job);
  } else {
    pass(end);
    coding_ends_ = schedule::PortNetwork::kNever;
    end_stage(std::exchange(coding_, kNone));
  }
}

void Traffic::pass(double time) {
  if (active_ > 0) in_flight_ += time - now_;
  now_ = time;
  network_.advance(time);
}

void Traffic::advance(double time) {
  for (choose_task(); next_end() <= time; choose_task()) end_next();
  if (now_ < time) pass(time);
}

double Traffic::finish(std::size_t job) {
  for (choose_task(); !done(job); choose_task()) end_next();
  return now_;
}

}  // namespace gradwire::plan
