#include "gradwire/codec/selection.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_math.h"

namespace gradwire::codec {
namespace {

/// Bits of magnitudes, which as integers have the same order. All are below 2^31, so signed
/// comparison, the fastest, is correct too.
using Magnitudes = std::array<std::int32_t, kMaxSelection>;

GRADWIRE_INLINE std::size_t count_from(const std::int32_t* __restrict m, std::size_t n,
                                       std::int32_t bound) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += m[i] >= bound ? 1 : 0;
  return static_cast<std::size_t>(count);
}

/// Returns a bound that at least k and at most k + slack magnitudes reach. If there is none,
/// returns the k-th largest magnitude, the largest bound that at least k reach. Finds the bound bit
/// by bit; bits that all magnitudes share need no counting.
GRADWIRE_VECTORIZED
std::int32_t bound_of(const std::int32_t* __restrict m, std::size_t n, std::size_t k,
                      std::size_t slack) {
  std::int32_t min = m[0];
  std::int32_t max = m[0];
  for (std::size_t i = 0; i < n; ++i) {
    min = m[i] < min ? m[i] : min;
    max = m[i] > max ? m[i] : max;
  }
  std::int32_t bound = 0;
  for (std::int32_t bit = 1 << 30; bit > 0; bit >>= 1) {
    const std::int32_t higher = bound | bit;
    if (higher > max) continue;
    const std::size_t count = higher <= min ? n : count_from(m, n, higher);
    if (count >= k) bound = higher;
    if (count >= k && count <= k + slack) break;
  }
  return bound;
}

GRADWIRE_INLINE std::int32_t magnitude(float x) {
  return static_cast<std::int32_t>(bits_of(x) & kMagnitude);
}

/// Computes the maximum magnitude of each of n / rows columns; the remaining values belong to no
/// column. Returns false if any value, those included, is not finite.
GRADWIRE_VECTORIZED
bool column_maxima(const float* __restrict x, std::size_t n, std::size_t rows,
                   std::int32_t* __restrict maxima) {
  const std::size_t columns = n / rows;
  for (std::size_t j = 0; j < columns; ++j) maxima[j] = magnitude(x[j]);
  for (std::size_t r = 1; r < rows; ++r) {
    const float* const row = x + r * columns;
    for (std::size_t j = 0; j < columns; ++j) {
      const std::int32_t m = magnitude(row[j]);
      maxima[j] = m > maxima[j] ? m : maxima[j];
    }
  }
  const std::size_t looked_at = rows * columns;
  return count_from(maxima, columns, kInfinity) == 0 &&
         max_magnitude(x + looked_at, n - looked_at) < kInfinity;
}

GRADWIRE_VECTORIZED
void mark(const float* __restrict x, std::size_t n, std::int32_t bound,
          std::uint8_t* __restrict marks) {
  for (std::size_t i = 0; i < n; ++i) marks[i] = magnitude(x[i]) >= bound ? 1 : 0;
}

/// Converts eight bytes, each 0 or 1, to eight bits, the first the lowest.
std::uint64_t gathered(const std::uint8_t* marks) {
  std::uint64_t word;
  std::memcpy(&word, marks, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return (word * 0x0102040810204080u) >> 56;
}

/// Stores the indexes of the marked values; returns their number. `marks` is zero up to a multiple
/// of 64. Works on 64 marks at a time, as a branch per mark would be mispredicted.
std::size_t marked(const std::uint8_t* marks, std::size_t n, std::uint16_t* indexes) {
  std::uint16_t* end = indexes;
  for (std::size_t at = 0; at < n; at += 64) {
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < 8; ++k) bits |= gathered(marks + at + 8 * k) << (8 * k);
    end = append_indexes(bits, at, end);
  }
  return static_cast<std::size_t>(end - indexes);
}

/// Number of values per column. It leaves four columns for each value to select, so that the k-th
/// largest column maximum is hardly below the k-th largest value.
std::size_t rows_for(std::size_t n, std::size_t k) {
  return std::clamp<std::size_t>(n / (4 * k), 1, 32);
}

}  // namespace

bool select_largest(const float* x, std::size_t n, std::size_t k, std::uint16_t* indexes) {
  alignas(64) Magnitudes some;
  alignas(64) std::array<std::uint8_t, kMaxSelection + 64> marks;
  std::array<std::uint16_t, kMaxSelection> candidates;
  const std::size_t rows = rows_for(n, k);
  if (!column_maxima(x, n, rows, some.data())) return false;
  // At least k column maxima, hence at least k values, reach the bound.
  const std::int32_t low = bound_of(some.data(), n / rows, k, k / 8);
  mark(x, n, low, marks.data());
  std::fill_n(marks.data() + n, 64, std::uint8_t{0});
  const std::size_t count = marked(marks.data(), n, candidates.data());
  for (std::size_t c = 0; c < count; ++c) some[c] = magnitude(x[candidates[c]]);
  const std::int32_t bound = bound_of(some.data(), count, k, 0);
  // Take all above the bound, and the first of those equal to it.
  std::size_t above = 0;
  for (std::size_t c = 0; c < count; ++c) above += some[c] > bound ? 1 : 0;
  std::size_t equal = above < k ? k - above : 0;
  std::size_t taken = 0;
  for (std::size_t c = 0; c < count && taken < k; ++c) {
    const bool takes = some[c] > bound || (some[c] == bound && equal > 0);
    if (some[c] == bound && equal > 0) --equal;
    indexes[taken] = candidates[c];
    taken += takes ? 1 : 0;
  }
  return true;
}

}  // namespace gradwire::codec
