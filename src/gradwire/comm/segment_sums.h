#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/base/bytes.h"

namespace gradwire {

/// A payload as it has arrived, with the checksum that came with it and was right.
struct Arrived {
  ConstBytes bytes;
  std::uint32_t sum = 0;
};

/// Checksums of the segments of a message that is passed on while it comes: made when a segment has
/// just been received or reduced and is in the cache, not when it is its turn to be sent. By then
/// it often has to be fetched from memory, which takes five times as long. A segment that goes on
/// as it came keeps the checksum it came with: what breaks it on this rank is found by the next.
/// Not thread-safe.
class SegmentSums {
 public:
  /// `ready` is the beginning of the message that may be sent, as far as that goes now; `last`: it
  /// is all of it. Sums up the segments, of `segment` bytes each, that have been added to it, but
  /// for one that is `arrived`.
  void add(ConstBytes ready, std::size_t segment, bool last, const Arrived& arrived = {});

  /// That of segment number `index`, if it was made.
  std::optional<std::uint32_t> at(std::size_t index) const;

 private:
  std::vector<std::uint32_t> sums_;
  std::size_t first_ = 0;  ///< Which segment sums_[0] is of.
};

}  // namespace gradwire
