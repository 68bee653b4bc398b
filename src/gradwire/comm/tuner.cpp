#include "gradwire/comm/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

tl::unexpected<Error> unknown(std::string_view what, std::string_view name,
                              const std::vector<std::string_view>& known) {
  return failure(ErrorKind::invalid_argument, unknown_name(what, std::string(name), known));
}

bool has(schedule::Collective collective, std::string_view algorithm) {
  const auto names = schedule::algorithm_names(collective);
  return std::ranges::find(names, algorithm) != names.end();
}

Status force_one(std::string_view collective, std::string_view algorithm,
                 ForcedAlgorithms& forced) {
  const auto found = schedule::collective_named(collective);
  if (!found) {
    std::vector<std::string_view> known;
    for (schedule::Collective c : schedule::all_collectives()) known.push_back(name_of(c));
    return unknown("collective", collective, known);
  }
  if (!has(*found, algorithm)) {
    return unknown(fmt::format("algorithm of {}", collective), algorithm,
                   schedule::algorithm_names(*found));
  }
  forced[*found] = algorithm;
  return {};
}

Status force_all(std::string_view algorithm, ForcedAlgorithms& forced) {
  bool any = false;
  std::set<std::string_view> known;
  for (schedule::Collective collective : schedule::all_collectives()) {
    for (std::string_view name : schedule::algorithm_names(collective)) known.insert(name);
    if (!has(collective, algorithm)) continue;
    forced[collective] = algorithm;
    any = true;
  }
  if (any) return {};
  return unknown("algorithm", algorithm, {known.begin(), known.end()});
}

}  // namespace

Result<ForcedAlgorithms> parse_forced_algorithms(std::string_view text, std::string_view source) {
  ForcedAlgorithms forced;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (entry.empty()) continue;
    const std::size_t equals = entry.find('=');
    const Status status =
        equals == std::string_view::npos
            ? force_all(entry, forced)
            : force_one(entry.substr(0, equals), entry.substr(equals + 1), forced);
    if (!status) {
      return failure(status.error().kind, fmt::format("{}: {}", source, status.error().message));
    }
  }
  return forced;
}

namespace {

/// Only point-to-point messages have a target, whatever the caller's specification says.
Rank target_of(const schedule::CollectiveSpec& spec) {
  return spec.collective == schedule::Collective::point_to_point ? spec.target : 0;
}

/// Maximum segments of a message that an estimate models: more change little and take longer.
constexpr std::uint32_t kMaxModeledSegments = 64;

/// A measurement applies to sizes within this number of octaves.
constexpr double kNear = 1.5;

}  // namespace

Tuner::Tuner(topology::Topology topology, std::size_t segment_bytes,
             std::vector<topology::MeasuredChoice> choices)
    : topology_(std::move(topology)), segment_bytes_(segment_bytes), choices_(std::move(choices)) {}

Tuner::~Tuner() = default;

topology::Topology Tuner::assumed(int ranks) {
  return topology::Topology::uniform(ranks, assumed_link());
}

topology::Link Tuner::assumed_link() {
  return {.latency = std::chrono::microseconds(40), .bytes_per_second = 1.25e8};
}

const std::vector<Tuner::Candidate>& Tuner::candidates(const schedule::CollectiveSpec& spec) {
  const Question question{spec.collective, spec.root, target_of(spec)};
  const auto known = candidates_.find(question);
  if (known != candidates_.end()) return known->second;
  std::vector<Candidate> found;
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    if (algorithm.collective != spec.collective) continue;
    if (algorithm.suits != nullptr && !algorithm.suits(topology_)) continue;
    found.push_back({std::string(algorithm.name),
                     std::make_unique<schedule::ScheduleCost>(algorithm.make(topology_, spec))});
  }
  return candidates_.emplace(question, std::move(found)).first->second;
}

std::string Tuner::choose(const schedule::CollectiveSpec& spec, std::size_t bytes) {
  return explain(spec, bytes).front().algorithm;
}

std::vector<AlgorithmEstimate> Tuner::explain(const schedule::CollectiveSpec& spec,
                                              std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes);
  const std::lock_guard lock(mutex_);
  auto& ranking_of = rankings_[{{spec.collective, spec.root, target_of(spec)}, rounded}];
  if (ranking_of.empty()) ranking_of = ranking(spec, rounded);
  return ranking_of;
}

std::vector<AlgorithmEstimate> Tuner::ranking(const schedule::CollectiveSpec& spec,
                                              std::size_t bytes) {
  std::vector<AlgorithmEstimate> ranked;
  schedule::CostOptions costs = schedule::executor_costs(segment_bytes_);
  costs.max_segments = kMaxModeledSegments;
  for (const Candidate& candidate : candidates(spec)) {
    const schedule::ScheduleCost& cost = *candidate.cost;
    const schedule::Counts counts =
        cost.count(schedule::ChunkLayout(cost.programs().schedule().chunks, bytes, 1));
    const Duration time = cost.estimate(topology_, bytes, costs).total;
    ranked.push_back({candidate.name, time, counts.steps, std::ranges::max(counts.bytes_sent)});
  }
  std::ranges::stable_sort(ranked, {}, &AlgorithmEstimate::time);
  prefer_measured(spec.collective, bytes, ranked);
  return ranked;
}

const topology::MeasuredChoice* Tuner::measured(schedule::Collective collective,
                                                std::size_t bytes) const {
  const auto octaves = [&](std::size_t other) {
    return std::abs(std::log2(static_cast<double>(std::max<std::size_t>(bytes, 1))) -
                    std::log2(static_cast<double>(std::max<std::size_t>(other, 1))));
  };
  const topology::MeasuredChoice* nearest = nullptr;
  for (const topology::MeasuredChoice& choice : choices_) {
    if (choice.collective != name_of(collective) || octaves(choice.bytes) > kNear) continue;
    if (nearest == nullptr || octaves(choice.bytes) < octaves(nearest->bytes)) nearest = &choice;
  }
  return nearest;
}

int Tuner::segments(schedule::Collective collective, std::size_t bytes,
                    const std::string& algorithm) const {
  // Rounds as choose() does: the value belongs to the algorithm.
  const topology::MeasuredChoice* choice = measured(collective, std::bit_ceil(bytes));
  return choice != nullptr && choice->algorithm == algorithm ? choice->segments : 0;
}

/// Moves the algorithm that was measured to be fastest to the front.
void Tuner::prefer_measured(schedule::Collective collective, std::size_t bytes,
                            std::vector<AlgorithmEstimate>& ranked) const {
  const topology::MeasuredChoice* choice = measured(collective, bytes);
  if (choice == nullptr) return;
  const auto at = std::ranges::find(ranked, choice->algorithm, &AlgorithmEstimate::algorithm);
  if (at == ranked.end()) return;  // Written by another version of gradwire.
  at->time = choice->time;
  at->measured = true;
  at->segments = choice->segments;
  std::rotate(ranked.begin(), at, at + 1);
}

}  // namespace gradwire
