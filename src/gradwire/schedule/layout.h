#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// A half-open range of bytes of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

/// Binds chunks to bytes: `elements` elements of `element_size` bytes cut into `chunks` chunks on
/// element boundaries, sizes differing by at most one element. The one place where this is
/// computed: executor, simulator and cost all ask here.
///
/// `elements` are those of all chunks together: for all_gather and reduce_scatter P times what one
/// rank contributes or gets, so that each chunk is exactly one rank's part.
class ChunkLayout {
 public:
  ChunkLayout(std::uint32_t chunks, std::size_t elements, std::size_t element_size)
      : chunks_(chunks), elements_(elements), element_size_(element_size) {}

  /// Bytes of chunk `first` to chunk `first + count - 1` of a data buffer.
  ByteRange byte_range(std::uint32_t first, std::uint32_t count = 1) const {
    return {begin(first), begin(first + count)};
  }

  /// Bytes of a slice within its buffer. A scratch slot is as large as the chunk it mirrors; slots
  /// lie one after the other, each beginning on a boundary of kScratchAlignment bytes.
  ByteRange byte_range(const Slice& slice, const Program& program) const;

  /// Bytes that all scratch slots of a program take.
  std::size_t scratch_bytes(const Program& program) const;

  /// Bytes that a slot mirroring data chunk `mirrored` takes, rounded up to the alignment.
  std::size_t slot_bytes(std::uint32_t mirrored) const;

  static constexpr std::size_t kScratchAlignment = 64;

 private:
  std::size_t begin(std::uint32_t chunk) const {
    // q * chunks + r elements: the first r chunks have one more.
    const std::size_t q = elements_ / chunks_;
    const std::size_t r = elements_ % chunks_;
    return (q * chunk + (chunk < r ? chunk : r)) * element_size_;
  }
  std::uint32_t chunks_;
  std::size_t elements_;
  std::size_t element_size_;
};

}  // namespace gradwire
