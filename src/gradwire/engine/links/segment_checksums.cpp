#include "gradwire/engine/links/segment_checksums.h"

#include <algorithm>

#include "gradwire/net/payload_checksum.h"

namespace gradwire::engine {
namespace {

/// Larger increments were not just received: they are the caller's data, or were copied.
constexpr std::size_t kFresh = 512 * 1024;

bool is_same(ConstBytes one, ConstBytes other) {
  return one.data() == other.data() && one.size() == other.size();
}

}  // namespace

void SegmentChecksums::add(ConstBytes ready, std::size_t segment, bool last,
                           const VerifiedPayload& payload) {
  const std::size_t until = (ready.size() + (last ? segment - 1 : 0)) / segment;
  std::size_t next = first_ + checksums_.size();
  if (until > next && (until - next) * segment > kFresh) {
    checksums_.clear();
    first_ = next = until;
  }
  for (; next < until; ++next) {
    const ConstBytes rest = ready.subspan(next * segment);
    const ConstBytes bytes = rest.first(std::min(segment, rest.size()));
    checksums_.push_back(is_same(bytes, payload.bytes) ? payload.checksum
                                                       : net::payload_checksum(bytes));
  }
}

std::optional<std::uint32_t> SegmentChecksums::at(std::size_t index) const {
  if (index < first_ || index - first_ >= checksums_.size()) return std::nullopt;
  return checksums_[index - first_];
}

}  // namespace gradwire::engine
