#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// A half-open range of bytes of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

/// The parts of an all_to_all at one rank, where they differ: input_counts[r] elements go to rank
/// r, output_counts[r] come from rank r. Immutable.
class Splits {
 public:
  /// As many of the one as of the other: the number of ranks.
  Splits(std::span<const std::size_t> input_counts, std::span<const std::size_t> output_counts);

  /// Elements of a buffer (input or output) before its chunk `chunk`, which may be one past the
  /// last.
  std::size_t begin(Buffer buffer, std::uint32_t chunk) const {
    return (buffer == Buffer::input ? input_begin_ : output_begin_)[chunk];
  }

 private:
  std::vector<std::size_t> input_begin_;
  std::vector<std::size_t> output_begin_;
};

/// Binds chunks to bytes: `elements` elements of `element_size` bytes cut into `chunks` chunks on
/// element boundaries, sizes differing by at most one element. The one place where this is
/// computed: executor, simulator and cost all ask here. Cheap to copy.
///
/// `elements` are those of all chunks together: for collectives in which each rank has a part (P
/// chunks), P times what one rank contributes or gets, so that each chunk is exactly one part.
class ChunkLayout {
 public:
  ChunkLayout(std::uint32_t chunks, std::size_t elements, std::size_t element_size)
      : chunks_(chunks), elements_(elements), element_size_(element_size) {}

  /// Of one rank's all_to_all with unequal parts. There is no scratch then.
  ChunkLayout(std::shared_ptr<const Splits> splits, std::size_t element_size)
      : element_size_(element_size), splits_(std::move(splits)) {}

  /// Bytes of chunk `first` to chunk `first + count - 1` of the input or output.
  ByteRange byte_range(Buffer buffer, std::uint32_t first, std::uint32_t count = 1) const {
    return {begin(buffer, first), begin(buffer, first + count)};
  }

  /// The same for either, where both are cut alike: without Splits.
  ByteRange byte_range(std::uint32_t first, std::uint32_t count = 1) const {
    return byte_range(Buffer::output, first, count);
  }

  /// Bytes of a slice within its buffer.
  ByteRange byte_range(const Slice& slice, const Program& program) const;

  /// Bytes that a slice has.
  std::size_t size(const Slice& slice, const Program& program) const;

  /// Where each scratch slot begins, and one past the last: how many bytes they all take. A slot is
  /// as large as the chunk it mirrors. Slots that mirror consecutive chunks lie next to each other
  /// without a gap, so that they can be used as one slice; all others begin on a boundary of
  /// kScratchAlignment bytes.
  std::vector<std::size_t> scratch_offsets(const Program& program) const;

  /// Bytes that all scratch slots of a program take.
  std::size_t scratch_bytes(const Program& program) const;

  static constexpr std::size_t kScratchAlignment = 64;

 private:
  std::size_t begin(Buffer buffer, std::uint32_t chunk) const {
    if (splits_) return splits_->begin(buffer, chunk) * element_size_;
    // q * chunks + r elements: the first r chunks have one more.
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

}  // namespace gradwire
