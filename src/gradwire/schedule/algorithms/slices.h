#pragma once

#include <vector>

#include "gradwire/schedule/schedule.h"

/// Shorthands for slices that all algorithms use.
namespace gradwire {

/// Chunks are often numbered like ranks, so these take ints.
inline Slice input(int first, int count = 1) {
  return {Buffer::input, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

inline Slice output(int first, int count = 1) {
  return {Buffer::output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

/// Chunks `first` to `first + count - 1` of a slice, relative to its beginning.
inline Slice part_of(const Slice& slice, int first, int count = 1) {
  return {slice.buffer, slice.first + static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(count)};
}

/// All ranks but `rank`, starting with the next one. If all ranks send in this order, no two send
/// to the same receiver at the same time.
inline std::vector<Rank> others_from(Rank rank, int ranks) {
  std::vector<Rank> others;
  for (int distance = 1; distance < ranks; ++distance) others.push_back((rank + distance) % ranks);
  return others;
}

}  // namespace gradwire
