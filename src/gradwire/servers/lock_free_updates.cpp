#include "gradwire/servers/lock_free_updates.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/base/vectorized.h"

namespace gradwire::servers {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

GRADWIRE_INLINE float fused(float factor, float value, float sum) {
  return __builtin_fmaf(factor, value, sum);
}

/// Fetches a cache line for a store. A load alone would fetch a copy of the line that another core
/// has changed, and the store would then wait for that core a second time.
GRADWIRE_INLINE void prefetch_to_write(const float* at) {
#ifdef __x86_64__
  asm volatile("prefetchw %0" : : "m"(*at));  // Without effect on processors that do not have it.
#else
  __builtin_prefetch(at, 1);
#endif
}

/// Rows whose first cache lines are fetched ahead: about as many as a core can wait for at once.
constexpr std::size_t kRowsAhead = 16;

/// The rows of a table that are updated one after the other.
struct Rows {
  float* table;
  std::size_t width;
  const std::int64_t* rows;
  std::size_t count;

  GRADWIRE_INLINE float* at(std::size_t i) const {
    return table + static_cast<std::size_t>(rows[i]) * width;
  }
  GRADWIRE_INLINE void prefetch_after(std::size_t i) const {
    if (i + kRowsAhead < count) prefetch_to_write(at(i + kRowsAhead));
  }
};

/// Returns the number of elements that are not zero.
GRADWIRE_INLINE std::int64_t add_unsampled(float* shared, const float* values, std::size_t count,
                                           float factor) {
  std::int64_t written = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == 0) continue;
    const std::atomic_ref<float> element(shared[i]);
    element.store(fused(factor, values[i], element.load(kRelaxed)), kRelaxed);
    ++written;
  }
  return written;
}

}  // namespace

UpdateCounts& UpdateCounts::operator+=(const UpdateCounts& other) {
  written += other.written;
  sampled += other.sampled;
  lost += other.lost;
  return *this;
}

LockFreeUpdates::LockFreeUpdates(UpdateOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  if (options_.sample_every < 1) {
    refuse("sample_every is {}; it must be at least 1: each update", options_.sample_every);
  }
  draw();
}

/// Distances between samples are drawn too: with equal ones, the samples of a matrix whose rows
/// have as many elements would all be in one column.
void LockFreeUpdates::draw() {
  next_ = static_cast<std::size_t>(random_.between(0, 2 * options_.sample_every - 2));
}

void LockFreeUpdates::add_sampled(float& shared, float value, float factor) {
  draw();
  if (value == 0) return;
  const std::atomic_ref<float> element(shared);
  float loaded = element.load(kRelaxed);
  const float sum = fused(factor, value, loaded);
  if (options_.between) options_.between();
  ++counts_.written;
  ++counts_.sampled;
  if (element.compare_exchange_strong(loaded, sum, kRelaxed)) return;
  ++counts_.lost;
  element.store(sum, kRelaxed);
}

GRADWIRE_INLINE void LockFreeUpdates::add_elements(float* shared, const float* values,
                                                   std::size_t count, float factor) {
  while (count > next_) {
    counts_.written += add_unsampled(shared, values, next_, factor);
    shared += next_;
    values += next_;
    count -= next_ + 1;
    add_sampled(*shared++, *values++, factor);
  }
  counts_.written += add_unsampled(shared, values, count, factor);
  next_ -= count;
}

GRADWIRE_VECTORIZED
void LockFreeUpdates::add(float* shared, const float* values, std::size_t count, float factor) {
  add_elements(shared, values, count, factor);
}

GRADWIRE_VECTORIZED
void LockFreeUpdates::add_rows(float* shared, std::size_t width, const std::int64_t* rows,
                               const float* values, std::size_t count, float factor) {
  const Rows table{shared, width, rows, count};
  for (std::size_t i = 0; i < count; ++i) {
    table.prefetch_after(i);
    add_elements(table.at(i), values + i * width, width, factor);
  }
}

GRADWIRE_VECTORIZED
void add_squares(float* shared, const float* values, float* sums, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::atomic_ref<float> element(shared[i]);
    sums[i] = fused(values[i], values[i], element.load(kRelaxed));
    if (values[i] != 0) element.store(sums[i], kRelaxed);
  }
}

GRADWIRE_VECTORIZED
void add_squares_to_rows(float* shared, std::size_t width, const std::int64_t* rows,
                         const float* squares, float* sums, std::size_t count) {
  const Rows table{shared, width, rows, count};
  for (std::size_t row = 0; row < count; ++row, squares += width, sums += width) {
    table.prefetch_after(row);
    float* const begin = table.at(row);
    for (std::size_t i = 0; i < width; ++i) {
      const std::atomic_ref<float> element(begin[i]);
      sums[i] = element.load(kRelaxed) + squares[i];
      if (squares[i] != 0) element.store(sums[i], kRelaxed);
    }
  }
}

void read_shared(const float* shared, float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    // An atomic_ref loads from what may also be stored to.
    values[i] = std::atomic_ref<float>(const_cast<float&>(shared[i])).load(kRelaxed);
  }
}

}  // namespace gradwire::servers
