#include "gradwire/plan/simulate/traffic.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradwire::plan {
namespace {

/// Remaining seconds at which a stage is finished: rounding errors.
constexpr double kNothing = 1e-12;

}  // namespace

std::size_t Traffic::start(int priority, std::vector<TrafficStage> stages) {
  const std::size_t job = jobs_.size();
  jobs_.push_back({priority, std::move(stages)});
  const auto lower_priority = std::ranges::find_if(
      active_, [&](std::size_t other) { return jobs_[other].priority < priority; });
  active_.insert(lower_priority, job);
  begin_stage(job);
  return job;
}

void Traffic::begin_stage(std::size_t job) {
  Job& one = jobs_[job];
  while (one.stage < one.stages.size() && one.stages[one.stage].seconds <= kNothing) ++one.stage;
  if (one.stage < one.stages.size()) {
    one.left = one.stages[one.stage].seconds;
  } else {
    std::erase(active_, job);
  }
}

void Traffic::share_port() {
  double free = 1;
  for (const std::size_t job : active_) {
    Job& one = jobs_[job];
    const TrafficStage& stage = one.stages[one.stage];
    if (stage.kind != TrafficStage::network) continue;
    const double wanted = std::min(1.0, stage.port_seconds / stage.seconds);
    const double share = std::min(wanted, free);
    one.speed = wanted > 0 ? share / wanted : 1;
    free -= share;
  }
  port_used_ = 1 - free;
}

void Traffic::choose_task() {
  if (coding_ != kNone) return;
  for (const std::size_t job : active_) {
    Job& one = jobs_[job];
    if (one.stages[one.stage].kind != TrafficStage::processor) continue;
    one.speed = 0;
    const bool first = coding_ == kNone;
    if (first || (one.priority == jobs_[coding_].priority && one.stage > jobs_[coding_].stage))
      coding_ = job;
  }
  if (coding_ != kNone) jobs_[coding_].speed = 1;
}

double Traffic::next_end() const {
  double next = std::numeric_limits<double>::infinity();
  for (const std::size_t job : active_) {
    const Job& one = jobs_[job];
    const bool waits = one.stages[one.stage].kind == TrafficStage::processor && job != coding_;
    if (!waits && one.speed > 0) next = std::min(next, now_ + one.left / one.speed);
  }
  return next;
}

/// Advances to `until`. No stage may end earlier; some may end then.
void Traffic::pass(double until) {
  const double time = until - now_;
  std::vector<std::size_t> over;
  for (const std::size_t job : active_) {
    Job& one = jobs_[job];
    if (one.stages[one.stage].kind == TrafficStage::processor && job != coding_) continue;
    one.left -= one.speed * time;
    if (one.left <= kNothing) over.push_back(job);
  }
  port_busy_ += port_used_ * time;
  if (!active_.empty()) in_flight_ += time;
  now_ = until;
  for (const std::size_t job : over) {
    if (job == coding_) coding_ = kNone;
    ++jobs_[job].stage;
    begin_stage(job);
  }
}

void Traffic::advance(double time) {
  while (now_ < time) {
    share_port();
    choose_task();
    pass(std::min(time, next_end()));
  }
}

double Traffic::finish(std::size_t job) {
  while (!done(job)) {
    share_port();
    choose_task();
    pass(next_end());
  }
  return now_;
}

}  // namespace gradwire::plan
