#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Which rank reduces which chunks: rank r those from first[r] to first[r + 1] - 1, perhaps none.
struct Owners {
  std::vector<std::uint32_t> first;

  /// counts[r] chunks for rank r.
  static Owners of_counts(const std::vector<std::uint32_t>& counts);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::uint32_t chunks() const { return first.back(); }
  int begin(Rank rank) const { return static_cast<int>(first[static_cast<std::size_t>(rank)]); }
  int count(Rank rank) const { return begin(rank + 1) - begin(rank); }
};

/// An all-reduce in two hops: everybody sends every owner its part of the input, each owner adds
/// them up and sends the result to all (direct.cpp).
Schedule all_reduce_at(const Owners& owners, std::string name);

}  // namespace gradwire
