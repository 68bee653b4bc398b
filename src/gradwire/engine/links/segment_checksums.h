#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/base/bytes.h"

namespace gradwire::engine {

/// A received payload with its verified checksum.
struct VerifiedPayload {
  ConstBytes bytes;
  std::uint32_t checksum = 0;
};

/// Checksums of the segments of a message that is forwarded with cut-through. They are computed
/// when a segment has just been received or reduced and is in the cache. When it is sent, it often
/// has to be fetched from memory, which takes five times as long. A segment forwarded unmodified
/// keeps its received checksum, so that the next rank detects corruption in this rank. Not
/// thread-safe.
class SegmentChecksums {
 public:
  /// `ready` is the prefix of the message that may be sent; `last`: it is the whole message.
  /// Computes the checksums of the segments, of `segment` bytes each, that are new in it, and
  /// reuses that of `payload`.
  void add(ConstBytes ready, std::size_t segment, bool last, const VerifiedPayload& payload = {});

  /// Returns the checksum of segment `index`, if it was computed.
  std::optional<std::uint32_t> at(std::size_t index) const;

 private:
  std::vector<std::uint32_t> checksums_;
  std::size_t first_ = 0;  ///< Index of the segment of checksums_[0].
};

}  // namespace gradwire::engine
