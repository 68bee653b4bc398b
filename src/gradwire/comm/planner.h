#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/comm/tuner.h"
#include "gradwire/engine/operations/compiled_program.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// How an operation of one kind and size is executed: the algorithm, as this rank's program.
struct OperationPlan {
  std::string algorithm;
  std::shared_ptr<const engine::CompiledProgram> program;
  int segments = 0;  ///< Per message, if `gradwire tune` found a value; else 0.
};

/// Selects an OperationPlan for an operation: the algorithm that the caller asked for, else the one
/// forced for the job, else the tuner's choice. Plans are cached. Thread-safe.
class Planner {
 public:
  /// `members`: the engine's rank of each rank; empty: the same.
  Planner(Rank rank, topology::JobTopology by, ForcedAlgorithms forced, std::size_t segment_bytes,
          std::vector<Rank> members = {});

  /// For an engine with algorithms of its own: every plan is its name, without a program.
  Planner(Rank rank, int ranks, std::string engine, std::vector<Rank> members = {});

  /// Returns a planner for a group of some of these ranks, of which this is rank `rank`.
  std::shared_ptr<Planner> for_subgroup(Rank rank, std::span<const Rank> ranks) const;

  /// Returns the engine's number of a rank.
  Rank engine_rank(Rank rank) const {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }
  /// Returns the rank with this number in the engine.
  Rank rank_of(Rank engine_rank) const;

  /// `bytes`: of all chunks together. `algorithm`: the caller's choice; empty: none. The reference
  /// is valid for the lifetime of the planner. Throws Exception(invalid_argument) for an unknown
  /// algorithm, which lists the known ones.
  const OperationPlan& plan(const schedule::CollectiveSpec& spec, std::size_t bytes,
                            const std::string& algorithm);

  /// Returns the algorithm forced for the job; empty if none is.
  std::string forced(schedule::Collective collective) const;

  const topology::Topology& topology() const { return topology_; }
  Tuner& tuner() { return tuner_; }

 private:
  /// Key of a compiled program. Empty algorithm: no choice by the caller.
  struct Task {
    schedule::Collective collective;
    Rank root;
    Rank target;
    std::string algorithm;
    auto operator<=>(const Task&) const = default;
  };
  using Magnitude = int;  ///< Sizes with the same next power of two share a plan.

  std::string choose(const schedule::CollectiveSpec& spec, std::size_t bytes,
                     const std::string& asked);
  std::shared_ptr<const engine::CompiledProgram> compile(const schedule::CollectiveSpec& spec,
                                                         const std::string& algorithm);

  Rank rank_;
  topology::Topology topology_;
  ForcedAlgorithms forced_;
  std::size_t segment_bytes_;
  std::vector<Rank> members_;
  std::optional<OperationPlan> engines_;  ///< Every plan, if the engine has its own algorithms.
  Tuner tuner_;
  std::mutex mutex_;
  std::map<std::pair<Task, Magnitude>, OperationPlan> plans_;
  std::map<Task, std::shared_ptr<const engine::CompiledProgram>> programs_;
};

}  // namespace gradwire
