#include "gradwire/servers/server_core.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire::servers {
namespace {

[[noreturn]] void corrupted(const std::string& message) {
  throw Exception(ErrorKind::corrupted, message);
}

}  // namespace

ServerCore::ServerCore(const ServerPolicy& policy, std::size_t units, ShardStore& store,
                       std::function<void(const Applied&)> log)
    : policy_(policy), store_(store), log_(std::move(log)) {
  check(policy_);
  const std::size_t workers = index(policy_.workers);
  units_.resize(units);
  for (std::size_t unit = 0; unit < units; ++unit) {
    units_[unit].mode = policy_.mode_of(unit);
    units_[unit].clocks.resize(workers);
  }
  living_.assign(workers, true);
  paused_.resize(workers);
  by_worker_.resize(workers);
  dropped_.resize(workers);
}

void ServerCore::check_worker(Rank worker, std::size_t unit) const {
  if (worker < 0 || worker >= policy_.workers) {
    corrupted(fmt::format("worker {} is none of {}", worker, policy_.workers));
  }
  if (unit >= units_.size()) {
    corrupted(fmt::format("worker {} names unit {} of {}", worker, unit, units_.size()));
  }
}

void ServerCore::begin_at(std::size_t unit, std::int64_t version) {
  check_worker(0, unit);
  Unit& begun = units_[unit];
  if (version < 0 || begun.version > 0 || std::ranges::max(begun.clocks) > 0) {
    corrupted(fmt::format("unit {} of version {} is to begin at version {}", unit, begun.version,
                          version));
  }
  begun.version = version;
  // Without common steps, each worker has made its share of the updates.
  const std::int64_t clock = begun.mode == Mode::sync ? version : version / policy_.workers;
  std::ranges::fill(begun.clocks, clock);
}

void ServerCore::on_push(const Push& push) {
  check_worker(push.worker, push.unit);
  Unit& unit = units_[push.unit];
  std::int64_t& next = unit.clocks[index(push.worker)];
  if (!is_living(push.worker)) return store_.drop(push.gradient);
  if (push.clock < next) {
    ++dropped_[index(push.worker)].repeated;
    return drop(push);
  }
  // A worker that was late in mode sync goes on with the step that the others have reached.
  const std::int64_t last = unit.mode == Mode::sync ? std::max(next, unit.version) : next;
  if (push.clock > last || push.base < 0 || push.base > unit.version) {
    corrupted(
        fmt::format("worker {} pushes unit {} with clock {} and version {}; it may push clock "
                    "{}, and the unit has version {}",
                    push.worker, push.unit, push.clock, push.base, last, unit.version));
  }
  next = push.clock + 1;
  const Contribution gradient{push.worker, push.clock, push.base, push.gradient, push.rate};
  if (unit.mode != Mode::sync) {
    apply(push.unit, {gradient});
  } else if (push.clock < unit.version) {
    ++dropped_[index(push.worker)].late;
    drop(push);
  } else {
    unit.open.push_back(gradient);
  }
  settle(push.unit);
}

void ServerCore::drop(const Push& push) {
  if (log_) {
    log_({.unit = push.unit,
          .worker = push.worker,
          .clock = push.clock,
          .base = push.base,
          .version = units_[push.unit].version,
          .gradient = push.gradient,
          .outcome = Outcome::dropped});
  }
  store_.drop(push.gradient);
}

void ServerCore::on_pull(Rank worker, std::size_t unit, std::int64_t clock) {
  check_worker(worker, unit);
  if (!is_living(worker)) return;
  if (clock < 0 || clock > units_[unit].clocks[index(worker)]) {
    corrupted(
        fmt::format("worker {} asks for unit {} to compute clock {}, and has not pushed clock {}",
                    worker, unit, clock, units_[unit].clocks[index(worker)]));
  }
  units_[unit].waiting.push_back({worker, clock});
  settle(unit);
}

void ServerCore::on_lost(Rank worker) {
  check_worker(worker, 0);
  living_[index(worker)] = false;
  drop_part(worker);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::erase_if(units_[unit].waiting, [&](const Waiting& w) { return w.worker == worker; });
    settle(unit);
  }
  std::erase_if(answers_, [&](const Answer& answer) { return answer.worker == worker; });
}

void ServerCore::on_pause(Rank worker) {
  check_worker(worker, 0);
  paused_[index(worker)] = true;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) settle(unit);
}

std::int64_t ServerCore::resume() {
  std::int64_t clock = 0;
  for (const Unit& unit : units_) clock = std::max(clock, std::ranges::max(unit.clocks));
  for (Unit& unit : units_) {
    std::ranges::fill(unit.clocks, unit.mode == Mode::sync ? unit.version : clock);
  }
  paused_.assign(paused_.size(), false);
  return clock;
}

void ServerCore::on_join(Rank worker, std::int64_t clock) {
  check_worker(worker, 0);
  if (clock < join_clock()) {
    corrupted(fmt::format("worker {} joins with clock {}, before {}", worker, clock, join_clock()));
  }
  if (policy_.mode == Mode::sync && living() == 0) {
    corrupted(fmt::format("worker {} joins, and no other lives whose steps it could join", worker));
  }
  living_[index(worker)] = true;
  paused_[index(worker)] = false;
  for (Unit& unit : units_) unit.clocks[index(worker)] = clock;
}

std::int64_t ServerCore::join_clock() const {
  std::int64_t clock = 0;
  for (const Unit& unit : units_) {
    const std::int64_t open = unit.version + (unit.open.empty() ? 0 : 1);
    clock = std::max(clock, unit.mode == Mode::sync ? open : slowest(unit));
  }
  return clock;
}

std::vector<Answer> ServerCore::take_answers() {
  return std::exchange(answers_, {});
}

int ServerCore::living() const {
  return static_cast<int>(std::ranges::count(living_, true));
}

double ServerCore::mean_factor() const {
  std::int64_t applied = 0;
  for (const Staleness& staleness : by_worker_) applied += staleness.count();
  return applied == 0 ? 1 : factors_ / static_cast<double>(applied);
}

/// Steps the unit with the mean of the gradients. They are added in the order of the workers, so
/// that the sum does not depend on who was first.
void ServerCore::apply(std::size_t unit, std::vector<Contribution> gradients) {
  std::ranges::sort(gradients, {}, &Contribution::worker);
  Unit& updated = units_[unit];
  std::vector<GradientId> ids;
  double factor = 1;
  for (const auto& [worker, clock, base, gradient, rate] : gradients) {
    const std::int64_t staleness = updated.version - base;
    const double by_staleness = policy_.rate.factor(staleness);
    factors_ += by_staleness;
    factor = by_staleness * rate;
    updated.staleness.add(staleness);
    by_worker_[index(worker)].add(staleness);
    ids.push_back(gradient);
    const auto outcome = ids.size() == gradients.size() ? Outcome::stepped : Outcome::added;
    if (log_) log_({unit, worker, clock, base, updated.version, gradient, outcome, factor});
  }
  // The gradients of a synchronous step are of one version.
  store_.apply(unit, ids, factor);
  ++updated.version;
  updated.grace_over = false;
}

/// Counts the living workers, of which some may have contributed, and the lost ones that have.
int ServerCore::contributors(const Unit& unit) const {
  int workers = 0;
  for (Rank worker = 0; worker < policy_.workers; ++worker) {
    const bool joined = unit.clocks[index(worker)] <= unit.version;
    const bool contributed =
        std::ranges::any_of(unit.open, [&](const Contribution& c) { return c.worker == worker; });
    if (contributed || (is_awaited(worker) && joined)) ++workers;
  }
  return workers;
}

bool ServerCore::has_enough(const Unit& unit) const {
  return !unit.open.empty() &&
         static_cast<int>(unit.open.size()) >= gradients_per_step(policy_.use, contributors(unit));
}

bool ServerCore::completes_step(const Unit& unit) const {
  const bool waits = policy_.grace > Duration::zero() && !unit.grace_over;
  return has_enough(unit) && (!waits || static_cast<int>(unit.open.size()) == contributors(unit));
}

bool ServerCore::waits_for_more(std::size_t unit) const {
  return has_enough(units_[unit]) && !completes_step(units_[unit]);
}

void ServerCore::on_grace_over(std::size_t unit) {
  if (!waits_for_more(unit)) return;
  units_[unit].grace_over = true;
  settle(unit);
}

/// Returns the smallest clock of a worker that others wait for; 0 if there is none.
std::int64_t ServerCore::slowest(const Unit& unit) const {
  std::int64_t clock = -1;
  for (Rank worker = 0; worker < policy_.workers; ++worker) {
    if (!is_awaited(worker)) continue;
    const std::int64_t own = unit.clocks[index(worker)];
    if (clock < 0 || own < clock) clock = own;
  }
  return std::max<std::int64_t>(clock, 0);
}

bool ServerCore::may_read(const Unit& unit, std::int64_t clock) const {
  switch (unit.mode) {
    case Mode::sync:
      return unit.version >= clock;
    case Mode::ssp:
      return slowest(unit) >= clock - policy_.staleness;
    case Mode::async:
      return true;
  }
  return true;
}

/// Mode sync: workers have joined for the next step, and all that could complete this one are gone.
void ServerCore::begin_where_others_left(Unit& unit) {
  if (unit.mode != Mode::sync || !unit.open.empty() || slowest(unit) <= unit.version) return;
  for (Waiting& pull : unit.waiting) {
    pull.clock = unit.version;
    unit.clocks[index(pull.worker)] = unit.version;
  }
}

/// Drops what a lost worker has pushed of a whole step, unless that is all: units of one step have
/// gradients of the same workers, or their common norm would be of none.
void ServerCore::drop_part(Rank worker) {
  const auto lacks = [&](const Unit& unit) { return unit.clocks[index(worker)] <= unit.version; };
  if (!policy_.whole_steps || std::ranges::none_of(units_, lacks)) return;
  for (Unit& unit : units_) {
    std::erase_if(unit.open, [&](const Contribution& part) {
      if (part.worker == worker) store_.drop(part.gradient);
      return part.worker == worker;
    });
  }
}

/// Steps the unit if all gradients are there; in a whole step all units, if all have theirs.
/// Returns true if others than this unit have been stepped.
bool ServerCore::step(std::size_t unit) {
  const auto completes = [this](const Unit& each) { return completes_step(each); };
  if (!completes(units_[unit])) return false;
  if (!policy_.whole_steps) {
    apply(unit, std::exchange(units_[unit].open, {}));
    return false;
  }
  if (!std::ranges::all_of(units_, completes)) return false;
  for (std::size_t each = 0; each < units_.size(); ++each) {
    apply(each, std::exchange(units_[each].open, {}));
  }
  return true;
}

/// Answers the pulls that no longer wait.
void ServerCore::answer(std::size_t unit) {
  Unit& answered = units_[unit];
  std::erase_if(answered.waiting, [&](const Waiting& pull) {
    if (!may_read(answered, pull.clock)) return false;
    answers_.push_back({pull.worker, unit, answered.version});
    return true;
  });
}

/// Completes the step if it can be, and answers what waited for that.
void ServerCore::settle(std::size_t unit) {
  begin_where_others_left(units_[unit]);
  if (!step(unit)) return answer(unit);
  for (std::size_t each = 0; each < units_.size(); ++each) answer(each);
}

}  // namespace gradwire::servers
