#include "gradwire/emulation/emulated_units.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/error.h"
#include "gradwire/emulation/emulated_values.h"

namespace gradwire::emulation {
namespace {

constexpr float kAbsent = -1;

}  // namespace

std::vector<step::StepUnit> step_units(const step::StepPlan& plan) {
  std::vector<step::StepUnit> units;
  for (std::size_t unit = 0; unit < plan.buckets.size(); ++unit) {
    units.push_back(
        {.elements = plan.buckets[unit].count, .gradients = 0, .is_root = plan.is_root[unit]});
  }
  for (const std::vector<std::size_t>& needs : plan.needs) {
    for (const std::size_t unit : needs) ++units[unit].gradients;
  }
  return units;
}

std::span<float> UnitPool::take(std::size_t count) {
  if (Buffer* kept = find_smallest_fit(count)) {
    kept->free = false;
    return std::span(kept->memory).first(count);
  }
  free_largest_unused();
  // Zeroed, so that the memory is really allocated.
  buffers_.push_back({std::vector<float>(count), false});
  allocated_ += count;
  peak_ = std::max(peak_, allocated_);
  return buffers_.back().memory;
}

void UnitPool::release(std::span<float> buffer) {
  const auto at =
      std::ranges::find(buffers_, buffer.data(), [](const Buffer& b) { return b.memory.data(); });
  GRADWIRE_CHECK(at != buffers_.end() && !at->free);
  at->free = true;
}

UnitPool::Buffer* UnitPool::find_smallest_fit(std::size_t count) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (!buffer.free || buffer.memory.size() < count) continue;
    if (best == nullptr || buffer.memory.size() < best->memory.size()) best = &buffer;
  }
  return best;
}

/// Called if no free buffer is large enough: frees the largest one to limit the total.
void UnitPool::free_largest_unused() {
  auto largest = buffers_.end();
  for (auto at = buffers_.begin(); at != buffers_.end(); ++at) {
    const bool larger = largest == buffers_.end() || at->memory.size() > largest->memory.size();
    if (at->free && larger) largest = at;
  }
  if (largest == buffers_.end()) return;
  allocated_ -= largest->memory.size();
  buffers_.erase(largest);
}

UnitsInMemory::UnitsInMemory(const step::StepPlan& plan, int stage, Rank rank, int ranks,
                             std::uint64_t seed, TraceRecorder* trace)
    : stage_(stage),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(stage == 0 ? 1 : static_cast<std::size_t>(ranks)),
      trace_(trace),
      drawn_(seed) {
  for (const exchange::UnitShape& shape : plan.buckets) {
    Unit& unit = units_.emplace_back();
    unit.shard_count = (shape.count + ranks_ - 1) / ranks_;
    const std::size_t whole = unit.shard_count * ranks_;
    elements_ += whole;
    unit.gradients.resize(stage <= 1 ? whole : 0);
    drawn_.fill(unit.gradients);
    unit.whole_gradients = unit.gradients;
    if (stage == 0) continue;
    unit.mean.resize(unit.shard_count);
    unit.parameters.resize(stage == 3 ? unit.shard_count : whole);
  }
}

void UnitsInMemory::make_gradients(std::size_t index) {
  Unit& unit = units_[index];
  if (unit.whole_gradients.empty())
    unit.whole_gradients = gradient_pool_.take(unit.shard_count * ranks_);
}

step::StepHost::Gradients UnitsInMemory::gradients(std::size_t index) {
  make_gradients(index);
  return {lend(units_[index].whole_gradients), lend(units_[index].mean)};
}

void UnitsInMemory::reduced(std::size_t index) {
  if (stage_ >= 2) gradient_pool_.release(std::exchange(units_[index].whole_gradients, {}));
}

bool UnitsInMemory::step(std::size_t index) {
  const TraceScope traced(trace_, TraceKind::optimizer);
  Unit& unit = units_[index];
  const std::vector<float>& mean = stage_ == 0 ? unit.gradients : unit.mean;
  read_ += read_all(mean);
  ++unit.steps;
  if (stage_ > 0) mark(shard_of(unit), marker_of(unit.steps));
  return true;
}

std::span<float> UnitsInMemory::shard_of(Unit& unit) const {
  if (stage_ == 3) return unit.parameters;
  return std::span(unit.parameters).subspan(rank_ * unit.shard_count, unit.shard_count);
}

step::StepHost::Parameters UnitsInMemory::parameters(std::size_t index) {
  Unit& unit = units_[index];
  if (stage_ < 3) return {lend(shard_of(unit)), lend(unit.parameters)};
  if (unit.gathered.empty()) unit.gathered = parameter_pool_.take(unit.shard_count * ranks_);
  for (std::size_t part = 0; part < ranks_; ++part)
    mark(unit.gathered.subspan(part * unit.shard_count, unit.shard_count), kAbsent);
  return {lend(unit.parameters), lend(unit.gathered)};
}

void UnitsInMemory::release(std::size_t index) {
  std::span<float>& gathered = units_[index].gathered;
  if (!gathered.empty()) parameter_pool_.release(std::exchange(gathered, {}));
}

std::span<const float> UnitsInMemory::whole_of(const Unit& unit) const {
  return stage_ == 3 && ranks_ > 1 ? std::span<const float>(unit.gathered) : unit.parameters;
}

void UnitsInMemory::use_parameters(std::size_t unit, std::size_t layer, std::int64_t steps) {
  if (stage_ > 0) return require_version(whole_of(units_[unit]), unit, layer, steps);
  if (units_[unit].steps == steps) return;
  throw Exception(ErrorKind::mismatch,
                  fmt::format("layer {} uses unit {} after {} optimizer steps, not {}", layer, unit,
                              units_[unit].steps, steps));
}

void UnitsInMemory::require_version(std::span<const float> whole, std::size_t unit,
                                    std::size_t layer, std::int64_t steps) const {
  if (whole.empty()) {
    throw Exception(ErrorKind::mismatch,
                    fmt::format("layer {} uses unit {}, which is not present", layer, unit));
  }
  const std::size_t count = units_[unit].shard_count;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const auto part = whole.subspan(rank * count, count);
    const float wanted = marker_of(steps);
    if (part.front() == wanted && part.back() == wanted) continue;
    throw Exception(ErrorKind::mismatch,
                    fmt::format("layer {} uses unit {}, but rank {}'s part of it has not arrived: "
                                "its ends have versions {} and {}, not {}",
                                layer, unit, rank, part.front(), part.back(), steps));
  }
}

EmulatedMemory UnitsInMemory::peak_memory() const {
  const std::size_t all = elements_ * sizeof(float), part = all / ranks_;
  if (stage_ == 0) return {all, all};
  return {stage_ < 3 ? all : part + parameter_pool_.peak_bytes(),
          (stage_ < 2 ? all : gradient_pool_.peak_bytes()) + part};
}

}  // namespace gradwire::emulation
