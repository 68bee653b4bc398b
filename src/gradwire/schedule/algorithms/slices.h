#pragma once

#include <vector>

#include "gradwire/schedule/schedule.h"

/// Short names that all algorithms use.
namespace gradwire {

/// Chunks are often numbered as ranks are, so ints are welcome.
inline Slice input(int first, int count = 1) {
  return {Buffer::input, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

inline Slice output(int first, int count = 1) {
  return {Buffer::output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

/// Chunks `first` to `first + count - 1` of a slice, counted from its beginning.
inline Slice part_of(const Slice& slice, int first, int count = 1) {
  return {slice.buffer, slice.first + static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(count)};
}

/// All ranks but `rank`, beginning with the next one: if every rank sends in this order, no two
/// send to the same one at the same time.
inline std::vector<Rank> others_from(Rank rank, int ranks) {
  std::vector<Rank> others;
  for (int distance = 1; distance < ranks; ++distance) others.push_back((rank + distance) % ranks);
  return others;
}

}  // namespace gradwire
