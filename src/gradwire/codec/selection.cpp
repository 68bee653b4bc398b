#include "gradwire/codec/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "gradwire/base/vectorised.h"
#include "gradwire/codec/block_math.h"

namespace gradwire {
namespace {

/// Bits of magnitudes, which compare as they do: all are below 2^31, so as signed numbers, too,
/// which is what processors compare fastest.
using Magnitudes = std::array<std::int32_t, kMaxSelection>;

GRADWIRE_INLINE std::size_t count_from(const std::int32_t* __restrict m, std::size_t n,
                                       std::int32_t bound) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += m[i] >= bound ? 1 : 0;
  return static_cast<std::size_t>(count);
}

/// A bound that at least k of the magnitudes reach, and at most k + slack of them, or else the
/// greatest bound of which the former is true: the k-th greatest. Its bits are found one by one.
GRADWIRE_VECTORISED
std::int32_t bound_of(const std::int32_t* __restrict m, std::size_t n, std::size_t k,
                      std::size_t slack) {
  std::int32_t bound = 0;
  for (std::int32_t bit = 1 << 30; bit > 0; bit >>= 1) {
    const std::size_t count = count_from(m, n, bound | bit);
    if (count >= k) bound |= bit;
    if (count >= k && count <= k + slack) break;
  }
  return bound;
}

/// m[i] = |x[i]|, and in `greatest` the greatest of each of n / rows columns: a few values are left
/// over at the end.
GRADWIRE_VECTORISED
void magnitudes(const float* __restrict x, std::size_t n, std::size_t rows,
                std::int32_t* __restrict m, std::int32_t* __restrict greatest) {
  for (std::size_t i = 0; i < n; ++i) m[i] = static_cast<std::int32_t>(bits_of(x[i]) & kMagnitude);
  const std::size_t columns = n / rows;
  for (std::size_t j = 0; j < columns; ++j) greatest[j] = m[j];
  for (std::size_t r = 1; r < rows; ++r) {
    const std::int32_t* const row = m + r * columns;
    for (std::size_t j = 0; j < columns; ++j) {
      greatest[j] = row[j] > greatest[j] ? row[j] : greatest[j];
    }
  }
}

GRADWIRE_VECTORISED
void mark(const std::int32_t* __restrict m, std::size_t n, std::int32_t bound,
          std::uint8_t* __restrict marks) {
  for (std::size_t i = 0; i < n; ++i) marks[i] = m[i] >= bound ? 1 : 0;
}

/// The indexes of what is marked; `marks` is zero up to a multiple of 8.
std::size_t marked(const std::uint8_t* marks, std::size_t n, std::uint16_t* indexes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < n; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, marks + at, sizeof word);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    for (; word != 0; word &= word - 1) {
      indexes[count++] = static_cast<std::uint16_t>(at + std::countr_zero(word) / 8);
    }
  }
  return count;
}

/// How many values share a column: as many as leave four columns for each value that is looked for,
/// so that the k-th greatest of the columns' greatest is hardly below the k-th greatest of all.
std::size_t rows_for(std::size_t n, std::size_t k) {
  return std::clamp<std::size_t>(n / (4 * k), 1, 32);
}

}  // namespace

void select_greatest(const float* x, std::size_t n, std::size_t k, std::uint16_t* indexes) {
  alignas(64) Magnitudes m;
  alignas(64) Magnitudes some;
  alignas(64) std::array<std::uint8_t, kMaxSelection + 8> marks;
  std::array<std::uint16_t, kMaxSelection> candidates;
  const std::size_t rows = rows_for(n, k);
  magnitudes(x, n, rows, m.data(), some.data());
  // At least k columns, so at least k values, reach what is the bound for their greatest.
  const std::int32_t low = bound_of(some.data(), n / rows, k, k / 8);
  mark(m.data(), n, low, marks.data());
  std::fill_n(marks.data() + n, 8, std::uint8_t{0});
  const std::size_t count = marked(marks.data(), n, candidates.data());
  for (std::size_t c = 0; c < count; ++c) some[c] = m[candidates[c]];
  const std::int32_t bound = bound_of(some.data(), count, k, 0);
  // All above the bound, and of those that equal it the first.
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
}

}  // namespace gradwire
