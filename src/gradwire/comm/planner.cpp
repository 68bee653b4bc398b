#include "gradwire/comm/planner.h"

#include <algorithm>
#include <bit>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire {

Planner::Planner(Rank rank, topology::JobTopology by, ForcedAlgorithms forced,
                 std::size_t segment_bytes, std::vector<Rank> members)
    : rank_(rank),
      topology_(std::move(by.topology)),
      forced_(std::move(forced)),
      segment_bytes_(segment_bytes),
      members_(std::move(members)),
      tuner_(topology_, segment_bytes, std::move(by.choices)) {}

Planner::Planner(Rank rank, int ranks, std::string engine, std::vector<Rank> members)
    : Planner(rank, {.topology = Tuner::assumed(ranks), .choices = {}}, {}, 1, std::move(members)) {
  engines_ = OperationPlan{.algorithm = std::move(engine), .program = nullptr};
}

std::shared_ptr<Planner> Planner::for_subgroup(Rank rank, std::span<const Rank> ranks) const {
  std::vector<Rank> members;
  for (const Rank one : ranks) members.push_back(engine_rank(one));
  if (engines_) {
    return std::make_shared<Planner>(rank, static_cast<int>(ranks.size()), engines_->algorithm,
                                     std::move(members));
  }
  return std::make_shared<Planner>(
      rank, topology::JobTopology{.topology = topology_.restricted_to(ranks), .choices = {}},
      forced_, segment_bytes_, std::move(members));
}

Rank Planner::rank_of(Rank engine_rank) const {
  if (members_.empty()) return engine_rank;
  return static_cast<Rank>(std::ranges::find(members_, engine_rank) - members_.begin());
}

const OperationPlan& Planner::plan(const schedule::CollectiveSpec& spec, std::size_t bytes,
                                   const std::string& algorithm) {
  if (engines_) {
    if (algorithm.empty()) return *engines_;
    refuse("algorithm \"{}\": the engine {} has algorithms of its own; force none", algorithm,
           engines_->algorithm);
  }
  const std::lock_guard lock(mutex_);
  // Rounds sizes as the tuner does. Lanes call in an order that differs between ranks, so the first
  // size seen must not determine the plan of sizes for which the tuner chooses differently.
  std::pair key{Task{spec.collective, spec.root, spec.target, algorithm},
                static_cast<Magnitude>(std::bit_width(std::bit_ceil(bytes)))};
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  OperationPlan made;
  made.algorithm = choose(spec, bytes, algorithm);
  made.program = compile(spec, made.algorithm);
  made.segments = tuner_.segments(spec.collective, bytes, made.algorithm);
  return plans_.emplace(std::move(key), std::move(made)).first->second;
}

std::string Planner::forced(schedule::Collective collective) const {
  const auto found = forced_.find(collective);
  return found == forced_.end() ? "" : found->second;
}

std::string Planner::choose(const schedule::CollectiveSpec& spec, std::size_t bytes,
                            const std::string& asked) {
  if (!asked.empty()) return asked;
  if (std::string forced_here = forced(spec.collective); !forced_here.empty()) return forced_here;
  const auto names = schedule::algorithm_names(spec.collective);
  return names.size() == 1 ? std::string(names.front()) : tuner_.choose(spec, bytes);
}

std::shared_ptr<const engine::CompiledProgram> Planner::compile(
    const schedule::CollectiveSpec& spec, const std::string& algorithm) {
  auto& entry = programs_[{spec.collective, spec.root, spec.target, algorithm}];
  if (!entry) {
    entry = engine::CompiledProgram::compile(
        value_or_throw(schedule::make_schedule(spec, algorithm, topology_)), rank_, members_);
  }
  return entry;
}

}  // namespace gradwire
