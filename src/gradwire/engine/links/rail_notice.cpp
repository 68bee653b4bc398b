#include "gradwire/engine/links/rail_notice.h"

#include <fmt/format.h>

namespace gradwire::engine {

std::array<std::byte, kRailNoticeBytes> encode(const RailNotice& notice) {
  std::array<std::byte, kRailNoticeBytes> bytes;
  store_little_endian(bytes.data(), static_cast<std::uint32_t>(notice.kind));
  store_little_endian(bytes.data() + 4, notice.rail);
  store_little_endian(bytes.data() + 8, notice.generation);
  store_little_endian(bytes.data() + 16, notice.written_bytes);
  store_little_endian(bytes.data() + 24, notice.received_frames);
  return bytes;
}

Result<RailNotice> decode_rail_notice(ConstBytes bytes) {
  if (bytes.size() != kRailNoticeBytes) {
    return failure(ErrorKind::corrupted, fmt::format("a rail notice of {} bytes, expected {}",
                                                     bytes.size(), kRailNoticeBytes));
  }
  const auto kind = load_little_endian<std::uint32_t>(bytes.data());
  if (kind > static_cast<std::uint32_t>(RailNotice::Kind::suspect)) {
    return failure(ErrorKind::corrupted, fmt::format("a rail notice of unknown kind {}", kind));
  }
  return RailNotice{.kind = static_cast<RailNotice::Kind>(kind),
                    .rail = load_little_endian<std::uint32_t>(bytes.data() + 4),
                    .generation = load_little_endian<std::uint64_t>(bytes.data() + 8),
                    .written_bytes = load_little_endian<std::uint64_t>(bytes.data() + 16),
                    .received_frames = load_little_endian<std::uint64_t>(bytes.data() + 24)};
}

}  // namespace gradwire::engine
