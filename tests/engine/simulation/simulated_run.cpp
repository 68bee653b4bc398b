#include "tests/engine/simulation/simulated_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/engine/simulated_job.h"
#include "tests/engine/wrapped_transport.h"

namespace gradwire::test {
namespace {

/// Time by which even the slowest failure must be detected: the operation's timeout (60 s) after
/// the last call, the longest freeze and the longest stalls.
constexpr Time kHorizon{std::chrono::seconds(300)};

/// Error kinds with which an operation may fail because of the fault, directly or because an
/// earlier operation did.
std::vector<ErrorKind> possible_causes(const Scenario& s) {
  switch (s.fault) {
    case Fault::none:
    case Fault::suspend:
    case Fault::rails:
      return {};
    case Fault::freeze:
      // Shorter freezes may go undetected.
      if (s.freeze_for < s.options.dead_peer_timeout - 4 * s.network.max_stall) {
        return {};
      }
      return {ErrorKind::disconnected, ErrorKind::aborted};
    case Fault::kill:
    case Fault::cut:
    case Fault::reset:
    case Fault::departure:
      return {ErrorKind::disconnected, ErrorKind::aborted};
    case Fault::flip:
      return {ErrorKind::corrupted, ErrorKind::aborted};
    case Fault::mismatch:
      return {ErrorKind::mismatch, ErrorKind::aborted};
    case Fault::absence:
      return {ErrorKind::timeout, ErrorKind::aborted};
  }
  return {};
}

/// Maximum time from the fault and the call to the failure, stalls of the network included.
Duration max_detection_time(Fault fault) {
  switch (fault) {
    case Fault::kill:
    case Fault::reset:
      return std::chrono::milliseconds(2500);
    case Fault::cut:
    case Fault::freeze:
      return std::chrono::seconds(18);
    case Fault::none:
    case Fault::suspend:
    case Fault::flip:
    case Fault::mismatch:
    case Fault::absence:
    case Fault::departure:
    case Fault::rails:
      break;
  }
  // These occur when a rank makes its last call, or when the next frame arrives.
  return std::chrono::seconds(90);
}

class Run {
 public:
  explicit Run(const Scenario& scenario)
      : s_(scenario),
        job_(scenario.hosts, scenario.host_of, scenario.network, scenario.options,
             wrap_of(scenario)) {
    const auto ranks = static_cast<std::size_t>(s_.ranks);
    for (const Case& c : s_.cases) {
      Slot slot{std::vector<Memory>(ranks), std::vector<Memory>(ranks), {}, c};
      for (Rank r = 0; r < s_.ranks; ++r) {
        slot.inputs[static_cast<std::size_t>(r)] = make_input(c, r, s_.seed);
        slot.outcomes.push_back(std::make_shared<Outcome>(&job_.network()));
      }
      slots_.push_back(std::move(slot));
    }
  }

  std::optional<std::string> violation() {
    const std::vector<std::vector<Memory>> before = copy_inputs();
    schedule_calls();
    for (const Action& action : actions_) {
      job_.run(action.at, [] { return false; });
      action.act();
    }
    job_.run(kHorizon, [&] {
      if (s_.leaves) let_leave();
      return all_done();
    });
    return check(before);
  }

 private:
  struct Slot {
    std::vector<Memory> inputs;
    std::vector<Memory> outputs;
    std::vector<std::shared_ptr<Outcome>> outcomes;
    Case called;
  };
  struct Action {
    Time at;
    std::function<void()> act;
  };

  std::vector<std::vector<Memory>> copy_inputs() const {
    std::vector<std::vector<Memory>> copies;
    for (const Slot& slot : slots_) copies.push_back(slot.inputs);
    return copies;
  }

  void schedule_calls() {
    for (Rank r = 0; r < s_.ranks; ++r) {
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        actions_.push_back(
            {s_.posted[static_cast<std::size_t>(r)][i], [this, r, i] { call(r, i); }});
      }
    }
    actions_.push_back({s_.fault_at, [this] { strike(); }});
    for (const RailFault& fault : s_.rail_faults) {
      actions_.push_back({fault.at, [this, &fault] { strike_rail(fault); }});
      if (fault.kind != RailFault::Kind::outage) continue;
      actions_.push_back({fault.at + fault.lasts,
                          [this, &fault] { job_.network().mend(fault.victim, fault.rail); }});
    }
    std::ranges::stable_sort(actions_, {}, &Action::at);
  }

  bool gone(Rank rank) const { return killed_ && rank == s_.victim; }
  bool strikes_call(Rank rank, std::size_t i) const {
    return rank == s_.victim && i + 1 == slots_.size();
  }

  void call(Rank rank, std::size_t i) {
    if (gone(rank)) return;
    const auto r = static_cast<std::size_t>(rank);
    Case c = slots_[i].called;
    if (strikes_call(rank, i)) {
      if (s_.fault == Fault::absence) return;
      if (s_.fault == Fault::departure) return leave(rank);
      if (s_.fault == Fault::mismatch) c.count += 1;
    }
    if (c.count != slots_[i].called.count) slots_[i].inputs[r] = make_input(c, rank, s_.seed);
    job_.executor(rank).post(
        make_request(c, rank, slots_[i].inputs[r], slots_[i].outputs[r], slots_[i].outcomes[r]),
        job_.now());
  }

  /// Closes a rank's communicator.
  void leave(Rank rank) {
    engine::Executor& executor = job_.executor(rank);
    if (executor.in_flight() > 0) {
      executor.abort({ErrorKind::aborted, "closed"});
    } else {
      executor.send_goodbye({});
    }
    job_.network().kill(rank);
    killed_ = true;
  }

  void strike() {
    net::SimNetwork& network = job_.network();
    switch (s_.fault) {
      case Fault::kill:
        network.kill(s_.victim);
        killed_ = true;
        break;
      case Fault::cut:
        network.cut(s_.victim);
        break;
      case Fault::freeze:
        network.freeze(s_.victim, job_.now() + s_.freeze_for);
        break;
      case Fault::suspend:
        for (Rank r = 0; r < s_.ranks; ++r) network.freeze(r, job_.now() + s_.freeze_for);
        break;
      case Fault::reset:
        network.reset(s_.victim, s_.other);
        break;
      case Fault::flip:
        network.flip_bit(s_.victim, s_.other);
        break;
      case Fault::none:
      case Fault::mismatch:
      case Fault::absence:
      case Fault::departure:
      case Fault::rails:
        break;
    }
  }

  void strike_rail(const RailFault& fault) {
    net::SimNetwork& network = job_.network();
    switch (fault.kind) {
      case RailFault::Kind::cut:
      case RailFault::Kind::outage:
        network.cut(fault.victim, fault.rail);
        break;
      case RailFault::Kind::slow:
        network.set_speed(fault.victim, fault.rail, fault.bytes_per_second);
        break;
      case RailFault::Kind::reset:
        const auto host = [&](Rank r) { return s_.host_of[static_cast<std::size_t>(r)]; };
        if (host(fault.victim) == host(fault.other)) return;
        if (fault.rail >= network.endpoint(fault.victim).rails(fault.other)) return;
        network.reset(fault.victim, fault.other, fault.rail);
        break;
    }
  }

  /// Returns true if this rank called the operation, which must then end.
  bool called(Rank rank, std::size_t i) const {
    const bool skips = s_.fault == Fault::absence || s_.fault == Fault::departure;
    return !gone(rank) && !(skips && strikes_call(rank, i));
  }

  /// Ranks that are done close their communicators; their processes end after that.
  void let_leave() {
    for (Rank r = 0; r < s_.ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const bool done =
          std::ranges::all_of(slots_, [&](const Slot& slot) { return slot.outcomes[i]->done(); });
      if (!done || job_.network().killed(r) || job_.executor(r).error()) continue;
      if (!left_[i]) job_.executor(r).send_goodbye({});
      left_[i] = true;
      if (job_.executor(r).flushed()) job_.network().kill(r);
    }
  }

  bool all_done() const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      for (Rank r = 0; r < s_.ranks; ++r) {
        if (called(r, i) && !slots_[i].outcomes[static_cast<std::size_t>(r)]->done()) return false;
      }
    }
    return true;
  }

  std::optional<std::string> check(const std::vector<std::vector<Memory>>& before) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      for (Rank r = 0; r < s_.ranks; ++r) {
        if (!called(r, i)) continue;
        if (auto violation = check_one(r, i, before)) {
          return fmt::format("rank {}, operation {}: {}\n{}", r, i, *violation, s_.describe());
        }
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> check_one(Rank rank, std::size_t i,
                                       const std::vector<std::vector<Memory>>& before) const {
    const auto r = static_cast<std::size_t>(rank);
    const Slot& slot = slots_[i];
    const Outcome& outcome = *slot.outcomes[r];
    if (outcome.successes + outcome.failures == 0) return "hangs";
    if (outcome.successes + outcome.failures > 1) return "ended more than once";
    const bool struck = s_.fault == Fault::mismatch && strikes_call(rank, i);
    if (!struck && slot.inputs[r] != before[i][r]) return "its input was written";
    if (outcome.failures > 0) return check_failure(rank, i, outcome);
    if (struck && hears_of_others(rank, slot.called)) {
      return "succeeded although the others called something else";
    }
    if (!struck && !is_right(slot.called, rank, slot.inputs, slot.outputs[r])) return "is wrong";
    return std::nullopt;
  }

  std::optional<std::string> check_failure(Rank rank, std::size_t i, const Outcome& outcome) const {
    const std::string& message = outcome.last.message;
    if (message.empty()) return "failed without a word";
    if (message.find("(reported by") != message.rfind("(reported by")) {
      return "says twice who reported it: " + message;
    }
    const std::vector<ErrorKind> causes = possible_causes(s_);
    if (std::ranges::find(causes, outcome.last.kind) == causes.end()) {
      return fmt::format("failed without cause ({}): {}", gradwire::name_of(outcome.last.kind),
                         message);
    }
    const Time posted = s_.posted[static_cast<std::size_t>(rank)][i];
    if (outcome.at > std::max(posted, s_.fault_at) + max_detection_time(s_.fault)) {
      return "failed late: " + message;
    }
    return std::nullopt;
  }

  /// Returns false for a rank that only sends, which may complete before any rank can report an
  /// error.
  static bool hears_of_others(Rank rank, const Case& c) {
    return std::ranges::any_of(c.schedule().program(rank).ops, engine::is_receive);
  }

  static engine::SimulatedJob::Wrap wrap_of(const Scenario& s) {
    if (!s.in_place) return {};
    return [&s](Rank rank, net::Transport& endpoint) {
      return std::make_unique<InPlaceTransport>(endpoint, static_cast<std::size_t>(s.ranks),
                                                s.seed + static_cast<std::uint64_t>(rank));
    };
  }

  const Scenario& s_;
  engine::SimulatedJob job_;
  std::vector<Slot> slots_;
  std::vector<Action> actions_;
  bool killed_ = false;
  std::vector<bool> left_ = std::vector<bool>(static_cast<std::size_t>(s_.ranks));
};

}  // namespace

std::optional<std::string> violation_of(const Scenario& scenario) {
  return Run(scenario).violation();
}

}  // namespace gradwire::test
