#include "gradwire/comm/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "gradwire/engine/executor_costs.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/incast.h"

namespace gradwire {
namespace {

/// Only point-to-point messages have a target, whatever the caller's specification says.
Rank target_of(const CollectiveSpec& spec) {
  return spec.collective == Collective::point_to_point ? spec.target : 0;
}

/// Maximum segments of a message that an estimate models: more change little and take longer.
constexpr std::uint32_t kMaxModeledSegments = 64;

/// Slow-down of incast through shared memory, where it only affects the caches.
constexpr double kShmFanInFactor = 1.02;

/// A measurement applies to sizes within this number of octaves.
constexpr double kNear = 1.5;

/// Lower bound of the time from the cost of messages on the processors of each machine that
/// simulates several hosts. (The cost model covers hosts with their own processors.)
Duration processor_bound(const Topology& topology, const Counts& counts) {
  std::map<int, double> load;  ///< Messages per processor, by kernel.
  for (Rank rank = 0; rank < topology.ranks(); ++rank) {
    const Host& host = topology.host(topology.host_of(rank));
    if (host.kernel < 0 || host.cores == 0) continue;
    const auto messages = static_cast<double>(counts.messages_sent[static_cast<std::size_t>(rank)]);
    load[host.kernel] += 2 * messages / host.cores;  // Each is sent and received there.
  }
  double most = 0;
  for (const auto& [kernel, messages] : load) most = std::max(most, messages);
  const auto one = static_cast<double>(executor_costs().per_segment.count());
  return Duration(static_cast<std::int64_t>(most * one));
}

/// Returns the slow-down factor from incast, which the link model does not cover.
double incast_penalty(const ScheduleCost& cost, const Topology& topology) {
  if (topology.hosts() > 1) return incast_factor(cost, topology);
  return max_fan_in(cost.programs(), [](Rank, Rank) { return true; }) > 0 ? kShmFanInFactor : 1;
}

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
    const Schedule schedule = algorithm.make(topology_, spec);
    auto cost = std::make_unique<ScheduleCost>(schedule);
    const double factor = incast_penalty(*cost, topology_);
    const double largest = largest_message(cost->programs());
    found.push_back(
        {std::string(algorithm.name), std::move(cost), schedule.chunks, factor, largest});
  }
  return candidates_.emplace(question, std::move(found)).first->second;
}

Duration Tuner::estimate(const Candidate& candidate, std::size_t bytes) const {
  const double message =
      candidate.largest_message * static_cast<double>(std::max<std::size_t>(bytes, 1));
  CostOptions options = executor_costs(message, segment_bytes_);
  options.max_segments = kMaxModeledSegments;
  const ChunkLayout layout(candidate.chunks, bytes, 1);
  const Duration time = candidate.cost->estimate(topology_, layout, options).total;
  return Duration(
      static_cast<std::int64_t>(static_cast<double>(time.count()) * candidate.incast_factor));
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
  for (const Candidate& candidate : candidates(spec)) {
    const Counts counts = candidate.cost->count(ChunkLayout(candidate.chunks, bytes, 1));
    const Duration time = std::max(estimate(candidate, bytes), processor_bound(topology_, counts));
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
