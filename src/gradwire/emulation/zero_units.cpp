#include "gradwire/emulation/zero_units.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr float kAbsent = -1;

/// float32 represents all integers up to 2^24 exactly.
float marker_of(std::int64_t version) {
  return static_cast<float>(version % (1 << 24));
}

}  // namespace

std::size_t ZeroUnits::bytes() const {
  const std::size_t shard = std::accumulate(shards.begin(), shards.end(), std::size_t{0});
  return shard * static_cast<std::size_t>(ranks) * sizeof(float);
}

ZeroUnits zero_units(const StepPlan& plan, Rank rank, int ranks) {
  ZeroUnits units{.rank = rank, .ranks = ranks, .of_layer = plan.needs};
  const auto parts = static_cast<std::size_t>(ranks);
  for (const BucketShape& bucket : plan.buckets)
    units.shards.push_back((bucket.count + parts - 1) / parts);
  units.first_layer = plan.first_layer;
  units.last_layer = plan.first_layer;
  for (std::size_t layer = 0; layer < plan.needs.size(); ++layer) {
    for (const std::size_t unit : plan.needs[layer])
      units.last_layer[unit] = std::max(units.last_layer[unit], layer);
  }
  return units;
}

void mark_version(std::span<float> part, std::int64_t version) {
  if (part.empty()) return;
  part.front() = part.back() = marker_of(version);
}

void mark_absent(std::span<float> unit, int ranks) {
  const std::size_t shard = unit.size() / static_cast<std::size_t>(ranks);
  for (std::size_t begin = 0; begin < unit.size(); begin += shard)
    unit[begin] = unit[begin + shard - 1] = kAbsent;
}

void check_version(std::span<const float> unit, int ranks, std::int64_t version, std::size_t layer,
                   std::size_t index) {
  if (unit.empty()) {
    throw Exception(ErrorKind::mismatch,
                    fmt::format("layer {} uses unit {}, which is not present", layer, index));
  }
  const std::size_t shard = unit.size() / static_cast<std::size_t>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto part = unit.subspan(static_cast<std::size_t>(rank) * shard, shard);
    const float wanted = marker_of(version);
    if (part.front() == wanted && part.back() == wanted) continue;
    throw Exception(ErrorKind::mismatch,
                    fmt::format("layer {} uses unit {}, but rank {}'s part of it has not arrived: "
                                "its ends have versions {} and {}, not {}",
                                layer, index, rank, part.front(), part.back(), version));
  }
}

}  // namespace gradwire
