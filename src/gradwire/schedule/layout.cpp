#include "gradwire/schedule/layout.h"

#include "gradwire/base/check.h"

namespace gradwire {

std::size_t ChunkLayout::slot_bytes(std::uint32_t mirrored) const {
  const std::size_t size = byte_range(mirrored).size();
  return (size + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

ByteRange ChunkLayout::byte_range(const Slice& slice, const Program& program) const {
  if (slice.buffer != Buffer::scratch) return byte_range(slice.first, slice.count);
  GRADWIRE_CHECK(slice.count == 1);
  std::size_t at = 0;
  for (std::uint32_t s = 0; s < slice.first; ++s) at += slot_bytes(program.scratch_mirrors[s]);
  return {at, at + byte_range(program.scratch_mirrors[slice.first]).size()};
}

std::size_t ChunkLayout::scratch_bytes(const Program& program) const {
  std::size_t total = 0;
  for (std::uint32_t mirrored : program.scratch_mirrors) total += slot_bytes(mirrored);
  return total;
}

}  // namespace gradwire
