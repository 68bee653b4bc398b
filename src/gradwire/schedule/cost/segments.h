#pragma once

#include <algorithm>
#include <cstddef>

namespace gradwire::schedule {

/// A forwarded message is split into about this many segments, so that the next rank can start
/// early (cut-through). Segments below kMinSegmentBytes would cost more than they save.
inline constexpr int kSegmentsPerMessage = 16;
inline constexpr std::size_t kMinSegmentBytes = 16 * 1024, kMaxSegmentBytes = 128 * 1024;
/// Segments are multiples of it: no element and no cache line is in two of them.
inline constexpr std::size_t kSegmentAlignment = 64;

/// Returns the segment size in bytes that splits a message into about `segments` segments (0:
/// kSegmentsPerMessage). At most `max_bytes`; a multiple of 64, unless `max_bytes` is less.
constexpr std::size_t segment_of(std::size_t message_bytes, std::size_t max_bytes,
                                 int segments = 0) {
  const int wanted = segments > 0 ? segments : kSegmentsPerMessage;
  const std::size_t part = message_bytes / static_cast<std::size_t>(wanted);
  const std::size_t aligned = (part + kSegmentAlignment - 1) & ~(kSegmentAlignment - 1);
  return std::min(std::max(aligned, kMinSegmentBytes), max_bytes);
}

}  // namespace gradwire::schedule
