#include "gradwire/pipeline/verifier.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "gradwire/pipeline/dependencies.h"
#include "gradwire/pipeline/weight_rules.h"

namespace gradwire::pipeline {
namespace {

using MaybeViolation = std::optional<Violation>;

template <class... Args>
Violation violation(Fault fault, fmt::format_string<Args...> text, Args&&... args) {
  return {fault, fmt::format(text, std::forward<Args>(args)...)};
}

MaybeViolation check_edges(const PipelineSchedule& schedule) {
  for (const Edge& edge : schedule.edges) {
    if (edge.from >= 0 && edge.from < edge.to && edge.to < schedule.stages()) continue;
    return violation(Fault::malformed, "an edge from stage {} to stage {}: there are {} stages",
                     edge.from, edge.to, schedule.stages());
  }
  for (Stage stage = 0; stage < schedule.stages(); ++stage) {
    const Rank rank = schedule.rank_of[static_cast<std::size_t>(stage)];
    if (rank >= 0 && rank < schedule.ranks()) continue;
    return violation(Fault::malformed, "stage {} is on rank {} of {}", stage, rank,
                     schedule.ranks());
  }
  const std::size_t bounds = schedule.weight_bounds.size();
  if (bounds != 0 && bounds != schedule.rank_of.size()) {
    return violation(Fault::malformed, "bounds of the weights of {} stages: there are {}", bounds,
                     schedule.stages());
  }
  if (schedule.micro_batches >= 1 && schedule.sends_in_flight >= 0 && schedule.receives_ahead >= 0)
    return std::nullopt;
  return violation(Fault::malformed,
                   "{} micro-batches, {} sends in flight, {} receives ahead; expected at least 1, "
                   "0, 0",
                   schedule.micro_batches, schedule.sends_in_flight, schedule.receives_ahead);
}

MaybeViolation check_task(const PipelineSchedule& schedule, Rank rank, const Task& task) {
  const bool known = task.stage >= 0 && task.stage < schedule.stages() && task.micro_batch >= 0 &&
                     task.micro_batch < schedule.micro_batches;
  if (!known) {
    return violation(Fault::malformed, "rank {}: {} is outside {} stages and {} micro-batches",
                     rank, name_of(task), schedule.stages(), schedule.micro_batches);
  }
  constexpr int kMaxDelay = 1 << 12;
  if (task.delay < 0 || task.delay > kMaxDelay) {
    return violation(Fault::malformed, "rank {}: {} has a delay of {} steps; expected 0 to {}",
                     rank, name_of(task), task.delay, kMaxDelay);
  }
  const Rank home = schedule.rank_of[static_cast<std::size_t>(task.stage)];
  if (home == rank) return std::nullopt;
  return violation(Fault::malformed, "rank {}: {}, but rank {} has stage {}", rank, name_of(task),
                   home, task.stage);
}

MaybeViolation check_form(const PipelineSchedule& schedule) {
  if (auto wrong = check_edges(schedule)) return wrong;
  for (Rank rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Task& task : schedule.order[static_cast<std::size_t>(rank)]) {
      if (auto wrong = check_task(schedule, rank, task)) return wrong;
    }
  }
  return std::nullopt;
}

/// Counts of one micro-batch in one stage, by Compute.
using Counts = std::array<int, 4>;

bool is_complete(const Counts& counts, bool trains) {
  const auto [f, b, i, w] = counts;
  if (f != 1 || !trains) return f == 1 && b + i + w == 0;
  return (b == 1 && i == 0 && w == 0) || (b == 0 && i == 1 && w == 1);
}

MaybeViolation check_complete(const PipelineSchedule& schedule) {
  std::map<std::pair<Stage, MicroBatch>, Counts> counts;
  for (const auto& tasks : schedule.order) {
    for (const Task& task : tasks) {
      ++counts[{task.stage, task.micro_batch}][static_cast<std::size_t>(task.compute)];
    }
  }
  for (Stage stage = 0; stage < schedule.stages(); ++stage) {
    for (MicroBatch i = 0; i < schedule.micro_batches; ++i) {
      const Counts& found = counts[{stage, i}];
      if (is_complete(found, schedule.trains)) continue;
      return violation(Fault::incomplete,
                       "micro-batch {} in stage {}: {} F, {} B, {} I, {} W; expected one F and "
                       "{}",
                       i, stage, found[0], found[1], found[2], found[3],
                       schedule.trains ? "either one B, or one I and one W" : "nothing else");
    }
  }
  return std::nullopt;
}

/// The place of each task of a step among its rank's tasks, those of later steps included. B counts
/// as I and as W.
class Places {
 public:
  explicit Places(const PipelineSchedule& schedule) {
    for (const auto& tasks : schedule.order) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        const Task& task = tasks[i];
        const auto [stage, batch] = std::pair(task.stage, task.micro_batch);
        const bool both = task.compute == Compute::backward;
        const Place place{task.delay, task.delay * tasks.size() + i};
        if (both || task.compute == Compute::backward_input) at_[{'I', stage, batch}] = place;
        if (both || task.compute == Compute::backward_weight) at_[{'W', stage, batch}] = place;
        if (task.compute == Compute::forward) at_[{'F', stage, batch}] = place;
      }
    }
  }
  std::size_t of(char kind, Stage stage, MicroBatch batch) const {
    return at_.at({kind, stage, batch}).place;
  }
  int delay_of(char kind, Stage stage, MicroBatch batch) const {
    return at_.at({kind, stage, batch}).delay;
  }

 private:
  struct Place {
    int delay = 0;
    std::size_t place = 0;
  };
  std::map<std::tuple<char, Stage, MicroBatch>, Place> at_;
};

MaybeViolation too_early(Rank rank, char kind, Stage stage, MicroBatch i, char needed, Stage from) {
  return violation(Fault::too_early, "rank {}: {}{}{} comes before {}{}{}, which it needs", rank,
                   stage, kind, i, from, needed, i);
}

MaybeViolation check_stage_order(const PipelineSchedule& schedule, const Places& places) {
  if (!schedule.trains) return std::nullopt;
  for (Stage stage = 0; stage < schedule.stages(); ++stage) {
    const Rank rank = schedule.rank_of[static_cast<std::size_t>(stage)];
    for (MicroBatch i = 0; i < schedule.micro_batches; ++i) {
      const std::size_t input = places.of('I', stage, i);
      if (input < places.of('F', stage, i)) return too_early(rank, 'B', stage, i, 'F', stage);
      if (places.of('W', stage, i) < input) return too_early(rank, 'W', stage, i, 'I', stage);
    }
  }
  return std::nullopt;
}

/// Stages of one rank that pass data on to each other.
MaybeViolation check_local_edges(const PipelineSchedule& schedule, const Places& places) {
  for (const Edge& edge : schedule.edges) {
    const Rank rank = schedule.rank_of[static_cast<std::size_t>(edge.from)];
    if (rank != schedule.rank_of[static_cast<std::size_t>(edge.to)]) continue;
    for (MicroBatch i = 0; i < schedule.micro_batches; ++i) {
      if (places.of('F', edge.to, i) < places.of('F', edge.from, i)) {
        return too_early(rank, 'F', edge.to, i, 'F', edge.from);
      }
      if (schedule.trains && places.of('I', edge.from, i) < places.of('I', edge.to, i)) {
        return too_early(rank, 'B', edge.from, i, 'B', edge.to);
      }
    }
  }
  return std::nullopt;
}

/// A delay must not be smaller than that of what the task needs from another rank.
MaybeViolation check_delays(const PipelineSchedule& schedule, const Places& places) {
  if (max_delay(schedule) == 0) return std::nullopt;
  for (const Edge& edge : schedule.edges) {
    for (MicroBatch i = 0; i < schedule.micro_batches; ++i) {
      if (places.delay_of('F', edge.to, i) < places.delay_of('F', edge.from, i)) {
        return too_early(schedule.rank_of[static_cast<std::size_t>(edge.to)], 'F', edge.to, i, 'F',
                         edge.from);
      }
      if (schedule.trains &&
          places.delay_of('I', edge.from, i) < places.delay_of('I', edge.to, i)) {
        return too_early(schedule.rank_of[static_cast<std::size_t>(edge.from)], 'B', edge.from, i,
                         'B', edge.to);
      }
    }
  }
  return std::nullopt;
}

/// A stage that cannot be divided, or that ZeRO shards, adds the gradients of weights in I.
MaybeViolation check_sums(const PipelineSchedule& schedule, const Places& places) {
  for (Stage stage = 0; schedule.trains && stage < schedule.stages(); ++stage) {
    for (MicroBatch i = 1; i < schedule.micro_batches; ++i) {
      for (const char part : {'I', 'W'}) {
        if (places.of(part, stage, i - 1) < places.of(part, stage, i)) continue;
        return violation(Fault::wrong_order,
                         "stage {} computes {} of micro-batch {} before that of {}, and would add "
                         "weight gradients in another order than one process: other bits",
                         stage, part, i, i - 1);
      }
    }
    const Rank rank = schedule.rank_of[static_cast<std::size_t>(stage)];
    const std::size_t next =
        places.of('W', stage, 0) + schedule.order[static_cast<std::size_t>(rank)].size();
    if (places.of('W', stage, schedule.micro_batches - 1) > next) {
      return violation(Fault::wrong_order,
                       "stage {} adds the weight gradients of a step's micro-batch 0 before those "
                       "of micro-batch {} of the step before",
                       stage, schedule.micro_batches - 1);
    }
  }
  return std::nullopt;
}

std::string described(const Node& node) {
  if (node.kind == Node::Kind::barrier) return "the barrier between steps";
  if (node.kind == Node::Kind::task) {
    return fmt::format("{} on rank {}", name_of(node.task), node.rank);
  }
  return fmt::format("the transfer of {} from rank {} to {}", name_of(node.task), node.rank,
                     node.to_rank);
}

/// Follows, from a blocked node, blocked nodes that it waits for until one comes again.
std::string cycle_text(const std::vector<Node>& nodes, const std::vector<std::size_t>& blocked) {
  std::map<std::size_t, std::size_t> waits_for;
  for (const std::size_t each : blocked) {
    for (const std::size_t next : nodes[each].next) waits_for[next] = each;
  }
  std::size_t node = blocked.front();
  for (std::size_t i = 0; i < blocked.size(); ++i) node = waits_for.at(node);
  std::string text = described(nodes[node]);
  constexpr int kMaxShown = 8;
  int shown = 0;
  for (std::size_t next = waits_for.at(node); next != node; next = waits_for.at(next)) {
    if (++shown > kMaxShown) return text + " waits for ...";
    text += " waits for " + described(nodes[next]);
    text += ", which";
  }
  return text + " waits for " + described(nodes[node]);
}

MaybeViolation check_deadlock(const PipelineSchedule& schedule) {
  const int delay = max_delay(schedule);
  for (int steps = 1; steps <= delay + 1; ++steps) {
    const std::vector<Node> nodes = dependencies_of(schedule, steps);
    const std::vector<std::size_t> blocked = blocked_nodes(nodes);
    if (!blocked.empty()) return violation(Fault::deadlock, "{}", cycle_text(nodes, blocked));
  }
  return std::nullopt;
}

MaybeViolation check_weights(const PipelineSchedule& schedule) {
  const bool flushes = schedule.weights == WeightRule::flush && max_delay(schedule) == 0;
  if (!schedule.trains || (flushes && schedule.weight_bounds.empty())) return std::nullopt;
  const auto found = weights_of(schedule);
  if (!found) return violation(Fault::wrong_weights, "{}", found.error().message);
  for (std::size_t stage = 0; stage < found->size(); ++stage) {
    const WeightBounds declared =
        schedule.weight_bounds.empty() ? WeightBounds{} : schedule.weight_bounds[stage];
    const auto& [staleness, kept] = (*found)[stage];
    if (staleness == declared.staleness && kept <= declared.kept) continue;
    return violation(Fault::wrong_weights,
                     "stage {} has weights of {} updates of staleness in {} copies, with the rule "
                     "{}; {} updates and {} copies are declared",
                     stage, staleness, kept, name_of(schedule.weights), declared.staleness,
                     declared.kept);
  }
  return std::nullopt;
}

MaybeViolation check_memory(const PipelineSchedule& schedule) {
  if (schedule.kept == 0) return std::nullopt;
  const std::vector<int> kept = kept_by_rank(schedule);
  const auto max = std::ranges::max_element(kept);
  if (*max <= schedule.kept) return std::nullopt;
  return violation(Fault::too_much, "rank {} keeps {} micro-batches, {} are declared",
                   max - kept.begin(), *max, schedule.kept);
}

}  // namespace

std::string_view name_of(Fault fault) {
  constexpr std::array<std::string_view, 7> kNames{"malformed",    "incomplete", "too_early",
                                                   "wrong_order",  "deadlock",   "too_much",
                                                   "wrong_weights"};
  return kNames[static_cast<std::size_t>(fault)];
}

std::optional<Violation> find_fault(const PipelineSchedule& schedule) {
  if (auto wrong = check_form(schedule)) return wrong;
  if (auto wrong = check_complete(schedule)) return wrong;
  const Places places(schedule);
  if (auto wrong = check_stage_order(schedule, places)) return wrong;
  if (auto wrong = check_local_edges(schedule, places)) return wrong;
  if (auto wrong = check_delays(schedule, places)) return wrong;
  if (auto wrong = check_sums(schedule, places)) return wrong;
  if (auto wrong = check_deadlock(schedule)) return wrong;
  if (auto wrong = check_memory(schedule)) return wrong;
  return check_weights(schedule);
}

}  // namespace gradwire::pipeline
