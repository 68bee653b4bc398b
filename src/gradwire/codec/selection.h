#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire {

/// The most values that select_greatest() takes.
inline constexpr std::size_t kMaxSelection = 8192;

/// The indexes of the k greatest of |x[0]|, ..., |x[n-1]|, in their order; of equal ones the first.
/// All must be finite; 1 <= k <= n <= kMaxSelection; `indexes` has room for k. Takes its time from
/// n, not from k: compares everything with bounds that it finds by counting, without sorting.
void select_greatest(const float* x, std::size_t n, std::size_t k, std::uint16_t* indexes);

}  // namespace gradwire
