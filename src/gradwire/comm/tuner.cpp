#include "gradwire/comm/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/cost.h"

namespace gradwire {
namespace {

/// Only point-to-point messages have a target, whatever the caller's specification says.
Rank target_of(const CollectiveSpec& spec) {
  return spec.collective == Collective::point_to_point ? spec.target : 0;
}

/// Maximum segments of a message that an estimate models: more change little and take longer.
constexpr std::uint32_t kMaxModeledSegments = 64;

/// A measurement applies to sizes within this number of octaves.
constexpr double kNear = 1.5;

}  // namespace

Tuner::Tuner(Topology topology, std::size_t segment_bytes, std::vector<MeasuredChoice> choices)
    : topology_(std::move(topology)), segment_bytes_(segment_bytes), choices_(std::move(choices)) {}

Tuner::~Tuner() = default;

Topology Tuner::assumed(int ranks) {
  return Topology::uniform(ranks, assumed_link());
}

Link Tuner::assumed_link() {
  return {.latency = std::chrono::microseconds(40), .bytes_per_second = 1.25e8};
}

const std::vector<Tuner::Candidate>& Tuner::candidates(const CollectiveSpec& spec) {
  const Question question{spec.collective, spec.root, target_of(spec)};
  const auto known = candidates_.find(question);
  if (known != candidates_.end()) return known->second;
  std::vector<Candidate> found;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    if (algorithm.collective != spec.collective) continue;
    if (algorithm.suits != nullptr && !algorithm.suits(topology_)) continue;
    found.push_back({std::string(algorithm.name),
                     std::make_unique<ScheduleCost>(algorithm.make(topology_, spec))});
  }
  return candidates_.emplace(question, std::move(found)).first->second;
}

std::string Tuner::choose(const CollectiveSpec& spec, std::size_t bytes) {
  return explain(spec, bytes).front().algorithm;
}

std::vector<AlgorithmEstimate> Tuner::explain(const CollectiveSpec& spec, std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes);
  const std::lock_guard lock(mutex_);
  auto& ranking_of = rankings_[{{spec.collective, spec.root, target_of(spec)}, rounded}];
  if (ranking_of.empty()) ranking_of = ranking(spec, rounded);
  return ranking_of;
}

std::vector<AlgorithmEstimate> Tuner::ranking(const CollectiveSpec& spec, std::size_t bytes) {
  std::vector<AlgorithmEstimate> ranked;
  CostOptions costs = executor_costs(segment_bytes_);
  costs.max_segments = kMaxModeledSegments;
  for (const Candidate& candidate : candidates(spec)) {
    const ScheduleCost& cost = *candidate.cost;
    const Counts counts = cost.count(ChunkLayout(cost.programs().schedule().chunks, bytes, 1));
    const Duration time = cost.estimate(topology_, bytes, costs).total;
    ranked.push_back({candidate.name, time, counts.steps, std::ranges::max(counts.bytes_sent)});
  }
  std::ranges::stable_sort(ranked, {}, &AlgorithmEstimate::time);
  prefer_measured(spec.collective, bytes, ranked);
  return ranked;
}

const MeasuredChoice* Tuner::measured(Collective collective, std::size_t bytes) const {
  const auto octaves = [&](std::size_t other) {
    return std::abs(std::log2(static_cast<double>(std::max<std::size_t>(bytes, 1))) -
                    std::log2(static_cast<double>(std::max<std::size_t>(other, 1))));
  };
  const MeasuredChoice* nearest = nullptr;
  for (const MeasuredChoice& choice : choices_) {
    if (choice.collective != name_of(collective) || octaves(choice.bytes) > kNear) continue;
    if (nearest == nullptr || octaves(choice.bytes) < octaves(nearest->bytes)) nearest = &choice;
  }
  return nearest;
}

int Tuner::segments(Collective collective, std::size_t bytes, const std::string& algorithm) const {
  // Rounds as choose() does: the value belongs to the algorithm.
  const MeasuredChoice* choice = measured(collective, std::bit_ceil(bytes));
  return choice != nullptr && choice->algorithm == algorithm ? choice->segments : 0;
}

/// Moves the algorithm that was measured to be fastest to the front.
void Tuner::prefer_measured(Collective collective, std::size_t bytes,
                            std::vector<AlgorithmEstimate>& ranked) const {
  const MeasuredChoice* choice = measured(collective, bytes);
  if (choice == nullptr) return;
  const auto at = std::ranges::find(ranked, choice->algorithm, &AlgorithmEstimate::algorithm);
  if (at == ranked.end()) return;  // Written by another version of gradwire.
  at->time = choice->time;
  at->measured = true;
  at->segments = choice->segments;
  std::rotate(ranked.begin(), at, at + 1);
}

}  // namespace gradwire
