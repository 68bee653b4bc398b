#include "gradwire/engine/segment_sums.h"

#include <algorithm>

#include "gradwire/net/payload_checksum.h"

namespace gradwire {
namespace {

/// Larger increments were not just received: they are the caller's data, or were copied.
constexpr std::size_t kFresh = 512 * 1024;

bool is_same(ConstBytes one, ConstBytes other) {
  return one.data() == other.data() && one.size() == other.size();
}

}  // namespace

void SegmentSums::add(ConstBytes ready, std::size_t segment, bool last, const Arrived& arrived) {
  const std::size_t until = (ready.size() + (last ? segment - 1 : 0)) / segment;
  std::size_t next = first_ + sums_.size();
  if (until > next && (until - next) * segment > kFresh) {
    sums_.clear();
    first_ = next = until;
  }
  for (; next < until; ++next) {
    const ConstBytes rest = ready.subspan(next * segment);
    const ConstBytes bytes = rest.first(std::min(segment, rest.size()));
    sums_.push_back(is_same(bytes, arrived.bytes) ? arrived.sum : payload_checksum(bytes));
  }
}

std::optional<std::uint32_t> SegmentSums::at(std::size_t index) const {
  if (index < first_ || index - first_ >= sums_.size()) return std::nullopt;
  return sums_[index - first_];
}

}  // namespace gradwire
