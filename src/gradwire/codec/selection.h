#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradwire {

/// The most values that select_greatest() takes.
inline constexpr std::size_t kMaxSelection = 8192;

/// The indexes of the k greatest of |x[0]|, ..., |x[n-1]|, in their order; of equal ones the first.
/// False, and nothing selected, if one is not finite. 1 <= k <= n <= kMaxSelection; `indexes` has
/// room for k. Takes its time from n, not from k: compares everything with bounds that it finds by
/// counting, without sorting.
bool select_greatest(const float* x, std::size_t n, std::size_t k, std::uint16_t* indexes);

/// Appends at + b for each bit b of `bits`, the lowest first, and returns their new end.
inline std::uint16_t* append_indexes(std::uint64_t bits, std::size_t at, std::uint16_t* end) {
  for (; bits != 0; bits &= bits - 1) {
    *end++ = static_cast<std::uint16_t>(at + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  return end;
}

}  // namespace gradwire
