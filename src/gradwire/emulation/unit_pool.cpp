#include "gradwire/emulation/unit_pool.h"

#include <algorithm>

#include "gradwire/base/check.h"

namespace gradwire {

std::span<float> UnitPool::take(std::size_t count) {
  if (Buffer* kept = find_smallest_fit(count)) {
    kept->free = false;
    return {kept->memory.get(), count};
  }
  free_largest_unused();
  // Zeroed, so that the memory is really allocated.
  buffers_.push_back({std::make_unique<float[]>(count), count, false});  // NOLINT
  allocated_ += count;
  peak_ = std::max(peak_, allocated_);
  return {buffers_.back().memory.get(), count};
}

void UnitPool::release(std::span<float> buffer) {
  const auto at =
      std::ranges::find(buffers_, buffer.data(), [](const Buffer& b) { return b.memory.get(); });
  GRADWIRE_CHECK(at != buffers_.end() && !at->free);
  at->free = true;
}

UnitPool::Buffer* UnitPool::find_smallest_fit(std::size_t count) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (!buffer.free || buffer.capacity < count) continue;
    if (best == nullptr || buffer.capacity < best->capacity) best = &buffer;
  }
  return best;
}

/// Called if no free buffer is large enough: frees the largest one to limit the total.
void UnitPool::free_largest_unused() {
  auto largest = buffers_.end();
  for (auto at = buffers_.begin(); at != buffers_.end(); ++at) {
    if (at->free && (largest == buffers_.end() || at->capacity > largest->capacity)) largest = at;
  }
  if (largest == buffers_.end()) return;
  allocated_ -= largest->capacity;
  buffers_.erase(largest);
}

}  // namespace gradwire
