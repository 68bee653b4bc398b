#include "gradwire/schedule/layout.h"

#include "gradwire/base/check.h"

namespace gradwire::schedule {
namespace {

std::vector<std::size_t> running_sums(std::span<const std::size_t> counts) {
  std::vector<std::size_t> sums{0};
  for (std::size_t count : counts) sums.push_back(sums.back() + count);
  return sums;
}

std::size_t rounded_up(std::size_t bytes) {
  constexpr std::size_t kTo = ChunkLayout::kScratchAlignment;
  return (bytes + kTo - 1) / kTo * kTo;
}

}  // namespace

Splits::Splits(std::span<const std::size_t> input_counts,
               std::span<const std::size_t> output_counts)
    : input_begin_(running_sums(input_counts)), output_begin_(running_sums(output_counts)) {
  GRADWIRE_CHECK(input_counts.size() == output_counts.size());
}

/// Returns the slot's offset, given the end `at` of the slot before it.
std::size_t ChunkLayout::next_slot(const Program& program, std::uint32_t slot,
                                   std::size_t at) const {
  const auto& mirrors = program.scratch_mirrors;
  const bool continues = slot > 0 && mirrors[slot] == mirrors[slot - 1] + 1;
  return continues ? at : rounded_up(at);
}

std::vector<std::size_t> ChunkLayout::scratch_offsets(const Program& program) const {
  const auto slots = static_cast<std::uint32_t>(program.scratch_mirrors.size());
  GRADWIRE_CHECK(slots == 0 || !splits_);
  std::vector<std::size_t> offsets;
  offsets.reserve(slots + 1);
  std::size_t at = 0;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    offsets.push_back(next_slot(program, slot, at));
    at = offsets.back() + byte_range(program.scratch_mirrors[slot]).size();
  }
  offsets.push_back(rounded_up(at));
  return offsets;
}

ByteRange ChunkLayout::byte_range(const Slice& slice, const Program& program) const {
  if (slice.buffer != Buffer::scratch) return byte_range(slice.buffer, slice.first, slice.count);
  const std::size_t begin = scratch_offsets(program)[slice.first];
  return {begin, begin + size(slice, program)};
}

std::size_t ChunkLayout::size(const Slice& slice, const Program& program) const {
  if (slice.count == 0) return 0;
  if (slice.buffer != Buffer::scratch) {
    return byte_range(slice.buffer, slice.first, slice.count).size();
  }
  return byte_range(program.scratch_mirrors[slice.first], slice.count).size();
}

std::size_t ChunkLayout::scratch_bytes(const Program& program) const {
  return scratch_offsets(program).back();
}

}  // namespace gradwire::schedule
