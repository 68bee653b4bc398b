#include "gradwire/comm/tuner.h"

#include <bit>

#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

/// What a message costs the processor at each end, measured on the executor over TCP.
constexpr Duration kPerSegment = std::chrono::microseconds(8);

/// Reading, checking and adding received bytes, measured likewise.
constexpr double kReduceBytesPerSecond = 3e9;

}  // namespace

Tuner::Tuner(Topology topology, std::size_t segment_bytes)
    : topology_(std::move(topology)), segment_bytes_(segment_bytes) {}

Tuner::~Tuner() = default;

Topology Tuner::assumed(int ranks) {
  return Topology::uniform(ranks, {.latency = std::chrono::microseconds(40), .bytes_per_second = 1.25e8});
}

const std::vector<Tuner::Candidate>& Tuner::candidates(Collective collective) {
  const auto known = candidates_.find(collective);
  if (known != candidates_.end()) return known->second;
  std::vector<Candidate> found;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    if (algorithm.collective != collective) continue;
    const Schedule schedule = algorithm.make(topology_, {.collective = collective});
    found.push_back({std::string(algorithm.name), std::make_unique<ScheduleCost>(schedule),
                     schedule.chunks});
  }
  return candidates_.emplace(collective, std::move(found)).first->second;
}

Duration Tuner::estimate(const Candidate& candidate, std::size_t bytes) const {
  const CostOptions options{.segment_bytes = segment_bytes_,
                            .max_segments = 32,
                            .per_segment = kPerSegment,
                            .reduce_bytes_per_second = kReduceBytesPerSecond};
  return candidate.cost->estimate(topology_, ChunkLayout(candidate.chunks, bytes, 1), options).total;
}

std::string Tuner::choose(Collective collective, std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes);
  const std::lock_guard lock(mutex_);
  std::string& choice = choices_[{collective, rounded}];
  if (!choice.empty()) return choice;
  Duration best = Duration::max();
  for (const Candidate& candidate : candidates(collective)) {
    const Duration time = estimate(candidate, rounded);
    if (time >= best) continue;
    best = time;
    choice = candidate.name;
  }
  return choice;
}

}  // namespace gradwire
