#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradwire::codec {

/// Maximum n of select_largest().
inline constexpr std::size_t kMaxSelection = 8192;

/// Finds the k largest of |x[0]|, ..., |x[n-1]|; of equal ones, the first. Stores their indexes in
/// ascending order. Returns false, and selects nothing, if a value is not finite. 1 <= k <= n <=
/// kMaxSelection; `indexes` has room for k. The time depends on n, not on k: values are compared
/// with bounds that are found by counting, without sorting.
bool select_largest(const float* x, std::size_t n, std::size_t k, std::uint16_t* indexes);

/// Appends at + b for each set bit b of `bits`, the lowest first. Returns the new end of the
/// indexes.
inline std::uint16_t* append_indexes(std::uint64_t bits, std::size_t at, std::uint16_t* end) {
  for (; bits != 0; bits &= bits - 1) {
    *end++ = static_cast<std::uint16_t>(at + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  return end;
}

}  // namespace gradwire::codec
