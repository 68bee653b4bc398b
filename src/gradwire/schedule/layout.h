#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::schedule {

/// A half-open range of bytes of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

/// Sizes of the parts of an all_to_all at one rank, where they differ: input_counts[r] elements go
/// to rank r, output_counts[r] elements come from rank r. Immutable.
class Splits {
 public:
  /// Both have one count per rank.
  Splits(std::span<const std::size_t> input_counts, std::span<const std::size_t> output_counts);

  /// Returns the number of elements of a buffer (input or output) before chunk `chunk`, which may
  /// be one past the last.
  std::size_t begin(Buffer buffer, std::uint32_t chunk) const {
    return (buffer == Buffer::input ? input_begin_ : output_begin_)[chunk];
  }

 private:
  std::vector<std::size_t> input_begin_;
  std::vector<std::size_t> output_begin_;
};

/// Maps chunks to bytes: `elements` elements of `element_size` bytes are cut into `chunks` chunks
/// on element boundaries. Chunk sizes differ by at most one element. Executor, simulator and cost
/// model all use this one computation. Cheap to copy.
///
/// `elements` counts all chunks together. For collectives in which each rank has a part (P chunks),
/// it is P times what one rank contributes or gets, so that each chunk is exactly one part.
class ChunkLayout {
 public:
  ChunkLayout(std::uint32_t chunks, std::size_t elements, std::size_t element_size)
      : chunks_(chunks), elements_(elements), element_size_(element_size) {}

  /// Layout of one rank's all_to_all with unequal parts. It has no scratch.
  ChunkLayout(std::shared_ptr<const Splits> splits, std::size_t element_size)
      : element_size_(element_size), splits_(std::move(splits)) {}

  /// Byte range of chunks `first` to `first + count - 1` of the input or output.
  ByteRange byte_range(Buffer buffer, std::uint32_t first, std::uint32_t count = 1) const {
    return {begin(buffer, first), begin(buffer, first + count)};
  }

  /// The same for either buffer, where both are cut alike: without Splits.
  ByteRange byte_range(std::uint32_t first, std::uint32_t count = 1) const {
    return byte_range(Buffer::output, first, count);
  }

  /// Byte range of a slice within its buffer.
  ByteRange byte_range(const Slice& slice, const Program& program) const;

  /// Size of a slice in bytes.
  std::size_t size(const Slice& slice, const Program& program) const;

  /// Returns each scratch slot's offset in bytes, then the total size. A slot is as large as the
  /// chunk it mirrors. Slots that mirror consecutive chunks are contiguous, so that they can form
  /// one slice. All others begin on a multiple of kScratchAlignment bytes.
  std::vector<std::size_t> scratch_offsets(const Program& program) const;

  /// Size of all scratch slots of a program in bytes.
  std::size_t scratch_bytes(const Program& program) const;

  static constexpr std::size_t kScratchAlignment = 64;

 private:
  std::size_t begin(Buffer buffer, std::uint32_t chunk) const {
    if (splits_) return splits_->begin(buffer, chunk) * element_size_;
    // elements_ = q * chunks_ + r: the first r chunks have one element more.
    const std::size_t q = elements_ / chunks_;
    const std::size_t r = elements_ % chunks_;
    return (q * chunk + (chunk < r ? chunk : r)) * element_size_;
  }
  std::size_t next_slot(const Program& program, std::uint32_t slot, std::size_t at) const;

  std::uint32_t chunks_ = 1;
  std::size_t elements_ = 0;
  std::size_t element_size_;
  std::shared_ptr<const Splits> splits_;
};

}  // namespace gradwire::schedule
