#include "gradwire/comm/segment_sums.h"

#include <algorithm>

#include "gradwire/net/payload_checksum.h"

namespace gradwire {
namespace {

/// What becomes ready in larger pieces has not just come: it was the caller's, or was copied.
constexpr std::size_t kFresh = 512 * 1024;

}  // namespace

void SegmentSums::add(ConstBytes ready, std::size_t segment, bool last) {
  const std::size_t until = (ready.size() + (last ? segment - 1 : 0)) / segment;
  std::size_t next = first_ + sums_.size();
  if (until > next && (until - next) * segment > kFresh) {
    sums_.clear();
    first_ = next = until;
  }
  for (; next < until; ++next) {
    const std::size_t begin = next * segment;
    const std::size_t size = std::min(segment, ready.size() - begin);
    sums_.push_back(payload_checksum(ready.subspan(begin, size)));
  }
}

std::optional<std::uint32_t> SegmentSums::at(std::size_t index) const {
  if (index < first_ || index - first_ >= sums_.size()) return std::nullopt;
  return sums_[index - first_];
}

}  // namespace gradwire
