#include "tests/servers/simulated_training.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/clock.h"

namespace gradwire::servers::test {
namespace {

std::size_t index(Rank rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

SimulatedTraining::SimulatedTraining(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed),
      core_(scenario.policy, scenario.units, *this),
      workers_(index(scenario.policy.workers)),
      versions_(scenario.units),
      waiting_(scenario.units, -1),
      open_(scenario.units),
      pushed_(scenario.units, std::vector<std::int64_t>(workers_.size())) {
  for (Worker& worker : workers_) {
    worker.clocks.resize(scenario_.units);
    worker.versions.resize(scenario_.units);
    if (scenario_.pauses) {
      worker.pauses_after = static_cast<int>(random_.between(0, scenario_.steps));
    }
  }
}

std::string SimulatedTraining::run() {
  const Rank victim = static_cast<Rank>(random_.below(workers_.size()));
  for (Rank rank = 0; rank < scenario_.policy.workers; ++rank) {
    at_worker(rank, delay(), [this, rank](Worker&) { begin_step(rank); });
  }
  while (!queue_.empty() && broken_.empty()) {
    if (scenario_.lost_before == events_) lose(victim);
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    ++events_;
    event.action();
  }
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker = workers_[rank];
    expect(!worker.lives || worker.steps == scenario_.steps,
           fmt::format("worker {} waits for ever after {} steps", rank, worker.steps));
  }
  for (std::size_t unit = 0; unit < scenario_.units; ++unit) {
    // A step that nobody completes any more keeps what has arrived.
    for (const GradientId id : open_[unit]) gradients_[id].freed = true;
  }
  for (const Gradient& gradient : gradients_) {
    expect(gradient.freed, fmt::format("a gradient of worker {} with clock {} was lost",
                                       gradient.push.worker, gradient.push.clock));
  }
  return broken_;
}

void SimulatedTraining::after(double delay, std::function<void()> action) {
  queue_.push({now_ + delay, scheduled_++, std::move(action)});
}

/// Does nothing if the worker is lost meanwhile.
void SimulatedTraining::at_worker(Rank rank, double delay, std::function<void(Worker&)> action) {
  after(delay, [this, rank, life = workers_[index(rank)].life, action = std::move(action)] {
    Worker& worker = workers_[index(rank)];
    if (worker.lives && worker.life == life) action(worker);
  });
}

/// Asks for all units.
void SimulatedTraining::begin_step(Rank rank) {
  Worker& worker = workers_[index(rank)];
  if (worker.pauses_after == worker.steps) return pause(rank);
  if (worker.steps == scenario_.steps) {
    core_.on_lost(rank);  // Nobody waits for one that is done.
    worker.life++;
    return send_answers();
  }
  worker.awaited = scenario_.units;
  for (std::size_t unit = 0; unit < scenario_.units; ++unit) {
    at_worker(rank, delay(), [this, rank, unit](Worker& asking) {
      core_.on_pull(rank, unit, asking.clocks[unit]);
      send_answers();
    });
  }
}

void SimulatedTraining::read(Rank rank, std::size_t unit, std::int64_t version) {
  Worker& worker = workers_[index(rank)];
  worker.versions[unit] = version;
  // One that was late goes on with the step of the others.
  if (is_synchronous(unit)) worker.clocks[unit] = version;
  if (--worker.awaited > 0) return;
  const double compute = 1 + 5 * random_.unit() * random_.unit();
  for (std::size_t each = 0; each < scenario_.units; ++each) {
    at_worker(rank, compute, [this, rank, each](Worker&) { push(rank, each); });
  }
  at_worker(rank, compute, [this, rank](Worker& done) {
    ++done.steps;
    begin_step(rank);
  });
}

/// The push arrives before the next pull of its unit, as messages of one stream do.
void SimulatedTraining::push(Rank rank, std::size_t unit) {
  Worker& worker = workers_[index(rank)];
  const Push push{rank, unit, worker.clocks[unit]++, worker.versions[unit]};
  deliver(push, 0.05 * random_.unit(), false);
  if (scenario_.repeats && random_.one_in(3)) deliver(push, 2 * delay(), true);
}

/// Also after the worker is lost, but not after it has come back.
void SimulatedTraining::deliver(const Push& push, double delay, bool repeated) {
  after(delay, [this, push, repeated, life = workers_[index(push.worker)].life] {
    const Worker& worker = workers_[index(push.worker)];
    if (worker.life == life || !worker.lives) arrive(push, repeated);
  });
}

void SimulatedTraining::arrive(const Push& push, bool repeated) {
  const GradientId id = gradients_.size();
  gradients_.push_back({push, repeated});
  gradients_[id].push.gradient = id;
  std::int64_t& next = pushed_[push.unit][index(push.worker)];
  const bool living = core_.is_living(push.worker);
  if (living && !repeated) next = std::max(next, push.clock + 1);
  const bool counts = living && !repeated && push.clock == versions_[push.unit];
  if (is_synchronous(push.unit) && counts) open_[push.unit].push_back(id);
  core_.on_push(gradients_[id].push);
  send_answers();
}

void SimulatedTraining::lose(Rank rank) {
  Worker& worker = workers_[index(rank)];
  if (!worker.lives || worker.steps == scenario_.steps) return;
  worker.lives = false;
  worker.life++;
  after(0.2 * random_.unit(), [this, rank] {  // Its last messages may come later.
    core_.on_lost(rank);
    send_answers();
    resume_if_all_pause();
    if (scenario_.rejoins) after(delay(), [this, rank] { rejoin(rank); });
  });
}

void SimulatedTraining::rejoin(Rank rank) {
  Worker& worker = workers_[index(rank)];
  if (scenario_.policy.mode == Mode::sync && core_.living() == 0) return;
  worker.lives = true;
  const std::int64_t clock = core_.join_clock();
  core_.on_join(rank, clock);
  std::ranges::fill(worker.clocks, clock);
  for (auto& pushed : pushed_) pushed[index(rank)] = clock;
  begin_step(rank);
}

void SimulatedTraining::pause(Rank rank) {
  workers_[index(rank)].pauses_after.reset();
  at_worker(rank, delay(), [this, rank](Worker& worker) {
    worker.paused = true;
    core_.on_pause(rank);
    send_answers();
    resume_if_all_pause();
  });
}

void SimulatedTraining::resume_if_all_pause() {
  const auto pauses = [&](std::size_t rank) {
    return workers_[rank].paused || !core_.is_living(static_cast<Rank>(rank));
  };
  std::vector<Rank> resumed;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!pauses(rank)) return;
    if (core_.is_living(static_cast<Rank>(rank))) resumed.push_back(static_cast<Rank>(rank));
  }
  const std::int64_t clock = core_.resume();
  for (const Rank rank : resumed) {
    workers_[index(rank)].paused = false;
    for (std::size_t unit = 0; unit < scenario_.units; ++unit) {
      const std::int64_t next = is_synchronous(unit) ? versions_[unit] : clock;
      workers_[index(rank)].clocks[unit] = pushed_[unit][index(rank)] = next;
    }
    at_worker(rank, delay(), [this, rank](Worker&) { begin_step(rank); });
  }
}

/// Measures the grace of steps that have enough gradients.
void SimulatedTraining::begin_graces() {
  for (std::size_t unit = 0; unit < scenario_.units; ++unit) {
    if (!core_.waits_for_more(unit) || waiting_[unit] == versions_[unit]) continue;
    waiting_[unit] = versions_[unit];
    after(seconds(scenario_.policy.grace), [this, unit, version = versions_[unit]] {
      waiting_[unit] = -1;
      if (versions_[unit] != version) return;
      core_.on_grace_over(unit);
      send_answers();
    });
  }
}

void SimulatedTraining::send_answers() {
  begin_graces();
  for (const Answer& answer : core_.take_answers()) {
    const std::int64_t clock = workers_[index(answer.worker)].clocks[answer.unit];
    expect(core_.is_living(answer.worker), "a lost worker is answered");
    expect(answer.version == versions_[answer.unit], "the answer has another version");
    if (scenario_.policy.whole_steps) {
      expect(std::ranges::adjacent_find(versions_, std::not_equal_to()) == versions_.end(),
             "a worker reads between the units of a whole step");
    }
    if (is_synchronous(answer.unit)) {
      const bool alone = core_.living() == 1;  // It goes on where the others have left.
      expect(answer.version >= clock || alone, "a worker reads before its step is complete");
    }
    if (scenario_.policy.mode == Mode::ssp) {
      expect(slowest(answer.unit) >= clock - scenario_.policy.staleness,
             fmt::format("worker {} reads for clock {}, and the slowest has finished {}",
                         answer.worker, clock, slowest(answer.unit)));
    }
    at_worker(answer.worker, delay(),
              [this, answer](Worker&) { read(answer.worker, answer.unit, answer.version); });
  }
}

/// Returns the number of clocks that all workers that train have pushed.
std::int64_t SimulatedTraining::slowest(std::size_t unit) const {
  std::int64_t slowest = INT64_MAX;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (core_.is_living(static_cast<Rank>(rank)) && !workers_[rank].paused) {
      slowest = std::min(slowest, pushed_[unit][rank]);
    }
  }
  return slowest;
}

void SimulatedTraining::apply(std::size_t unit, std::span<const GradientId> gradients,
                              double factor) {
  for (const GradientId id : gradients) {
    Gradient& gradient = gradients_[id];
    expect(!gradient.freed && !gradient.repeated, "a gradient is applied twice");
    expect(gradient.push.unit == unit, "a gradient is applied to another unit");
    gradient.freed = true;
    ++applied_;
    const double expected = scenario_.policy.rate.factor(versions_[unit] - gradient.push.base);
    expect(factor == expected, "the rate is not that of the staleness");
  }
  if (is_synchronous(unit)) check_synchronous(unit, gradients);
  if (scenario_.policy.whole_steps) check_whole(unit, gradients);
  ++versions_[unit];
}

/// The first gradients of the step, in the order of the workers.
void SimulatedTraining::check_synchronous(std::size_t unit, std::span<const GradientId> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Push& push = gradients_[gradients[i]].push;
    expect(push.base == versions_[unit], "a step has a gradient of an earlier one");
    expect(i == 0 || gradients_[gradients[i - 1]].push.worker < push.worker,
           "gradients are not in the order of the workers");
  }
  std::vector<GradientId> first = std::exchange(open_[unit], {});
  const bool all_live = !scenario_.lost_before;
  const bool all_train = std::ranges::all_of(workers_, [&](const Worker& worker) {
    return worker.steps < scenario_.steps && !worker.paused;
  });
  if (all_live && all_train) {
    const auto wanted = static_cast<std::size_t>(
        gradients_per_step(scenario_.policy.use, scenario_.policy.workers));
    const bool waits = scenario_.policy.grace > Duration::zero();
    expect(waits ? gradients.size() >= wanted : gradients.size() == wanted,
           "a step has another number of gradients");
  }
  std::ranges::sort(first, {}, [&](GradientId id) { return gradients_[id].push.worker; });
  expect(std::ranges::equal(first, gradients), "a step has not the first gradients");
}

/// All units of a step, one after the other in one event, have gradients of the same workers.
void SimulatedTraining::check_whole(std::size_t unit, std::span<const GradientId> gradients) {
  std::vector<Rank> workers;
  for (const GradientId id : gradients) workers.push_back(gradients_[id].push.worker);
  expect(unit == whole_.next, "units of a whole step are not in their order");
  whole_.next = (unit + 1) % scenario_.units;
  const WholeStep first{whole_.next, events_, workers};
  if (unit == 0) whole_ = first;
  expect(whole_.event == events_, "the units of a whole step are applied apart");
  expect(whole_.workers == workers, "units of a step have gradients of other workers");
}

/// Those of the open step stay, but for the parts of a whole step that a lost worker has pushed.
void SimulatedTraining::drop(GradientId gradient) {
  const Push& push = gradients_[gradient].push;
  expect(!gradients_[gradient].freed, "a gradient is freed twice");
  gradients_[gradient].freed = true;
  if (std::erase(open_[push.unit], gradient) == 0) return;
  expect(scenario_.policy.whole_steps && !core_.is_living(push.worker),
         "a gradient of the open step is dropped");
  const bool is_whole = std::ranges::all_of(
      pushed_, [&](const auto& clocks) { return clocks[index(push.worker)] > push.clock; });
  expect(!is_whole, "a lost worker has pushed all units of a step, and they do not count");
}

void SimulatedTraining::expect(bool holds, const std::string& rule) {
  if (!holds && broken_.empty()) broken_ = fmt::format("after event {}: {}", events_, rule);
}

}  // namespace gradwire::servers::test
