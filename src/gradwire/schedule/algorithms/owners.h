#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Assignment of chunks to the ranks that reduce them. Rank r owns the chunks from first[r] up to,
/// but not including, first[r + 1]; possibly none.
struct Owners {
  std::vector<std::uint32_t> first;

  /// Rank r owns counts[r] chunks.
  static Owners of_counts(const std::vector<std::uint32_t>& counts);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::uint32_t chunks() const { return first.back(); }
  int begin(Rank rank) const { return static_cast<int>(first[static_cast<std::size_t>(rank)]); }
  int count(Rank rank) const { return begin(rank + 1) - begin(rank); }
};

/// An all-reduce in two hops: every rank sends each owner its part of the input; each owner reduces
/// the contributions and sends the result to all (direct.cpp).
Schedule all_reduce_at_owners(const Owners& owners, std::string name);

}  // namespace gradwire
