#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "gradwire/comm/compiled_program.h"
#include "gradwire/comm/forced_algorithms.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// How an operation of one kind and size is done: which algorithm, as this rank's program.
struct OperationPlan {
  std::string algorithm;
  std::shared_ptr<const CompiledProgram> program;
  int segments = 0;  ///< Of each message, if `gradwire tune` found a number; else 0.
};

/// Turns what a caller wants into an OperationPlan: the algorithm that was asked for, else the one
/// forced for the whole job, else the tuner's choice. Each is worked out once and then looked up.
/// Thread-safe.
class Planner {
 public:
  Planner(Rank rank, JobTopology by, ForcedAlgorithms forced, std::size_t segment_bytes);

  /// `bytes` of all chunks together; `algorithm`: empty, or the name that the caller asked for.
  /// The reference lives as long as the planner.
  /// Throws Exception(invalid_argument) for an unknown algorithm; lists those there are.
  const OperationPlan& plan(const CollectiveSpec& spec, std::size_t bytes,
                            const std::string& algorithm);

  /// The algorithm that the whole job is to use for it; empty: whichever is chosen.
  std::string forced(Collective collective) const;

  const Topology& topology() const { return topology_; }
  Tuner& tuner() { return tuner_; }

 private:
  /// What is to be done, and by which algorithm; empty: whichever is chosen.
  struct Task {
    Collective collective;
    Rank root;
    Rank target;
    std::string algorithm;
    auto operator<=>(const Task&) const = default;
  };
  using Magnitude = int;  ///< Sizes within a power of two have the same plan.

  std::string choose(const CollectiveSpec& spec, std::size_t bytes, const std::string& asked);
  std::shared_ptr<const CompiledProgram> compile(const CollectiveSpec& spec,
                                                 const std::string& algorithm);

  Rank rank_;
  Topology topology_;
  ForcedAlgorithms forced_;
  Tuner tuner_;
  std::mutex mutex_;
  std::map<std::pair<Task, Magnitude>, OperationPlan> plans_;
  std::map<Task, std::shared_ptr<const CompiledProgram>> programs_;
};

}  // namespace gradwire
