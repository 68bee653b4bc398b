#include "gradwire/net/frame.h"

#include <fmt/format.h>

#include "gradwire/base/crc32c.h"

namespace gradwire::net {
namespace {

constexpr std::uint16_t kMagic = 0x5747;
constexpr int kSequenceBits = 48;  // The rest of the word is the group.
constexpr std::size_t kNumberAt = 32;
constexpr std::size_t kChecksumAt = 40;
constexpr std::size_t kCrcAt = 44;

Status check_limits(const FrameHeader& header) {
  if (header.type < FrameType::announce || header.type > FrameType::rail_notice) {
    return failure(ErrorKind::corrupted,
                   fmt::format("unknown frame type {}", static_cast<int>(header.type)));
  }
  const std::uint32_t limit = header.type == FrameType::data ? kMaxDataPayload : kMaxControlPayload;
  if (header.length > limit) {
    return failure(
        ErrorKind::corrupted,
        fmt::format("a frame with a payload of {} bytes; the limit is {}", header.length, limit));
  }
  return {};
}

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> into) {
  std::byte* at = into.data();
  store_little_endian<std::uint16_t>(at, kMagic);
  at[2] = static_cast<std::byte>(kFrameVersion);
  at[3] = static_cast<std::byte>(header.type);
  store_little_endian(at + 4, header.length);
  store_little_endian(at + 8, header.channel);
  store_little_endian(at + 12, header.message);
  store_little_endian(at + 16, header.sequence | std::uint64_t{header.group} << kSequenceBits);
  store_little_endian(at + 24, header.offset);
  store_little_endian(at + kChecksumAt, header.payload_checksum);
  set_number(into, header.number);
}

void set_number(std::span<std::byte, kFrameHeaderBytes> header, std::uint64_t number) {
  store_little_endian(header.data() + kNumberAt, number);
  store_little_endian(header.data() + kCrcAt, crc32c(header.first(kCrcAt)));
}

Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> from) {
  const std::byte* at = from.data();
  if (load_little_endian<std::uint16_t>(at) != kMagic) {
    return failure(ErrorKind::corrupted, "bytes that are not a gradwire frame");
  }
  if (load_little_endian<std::uint32_t>(at + kCrcAt) != crc32c(from.first(kCrcAt))) {
    return failure(ErrorKind::corrupted, "a frame header with a wrong checksum");
  }
  const auto version = static_cast<std::uint8_t>(at[2]);
  if (version != kFrameVersion) {
    return failure(
        ErrorKind::unsupported,
        fmt::format("frames of version {}, but this rank uses version {}: install the same "
                    "gradwire on all hosts",
                    version, kFrameVersion));
  }
  const auto sequence = load_little_endian<std::uint64_t>(at + 16);
  FrameHeader header{.type = static_cast<FrameType>(at[3]),
                     .length = load_little_endian<std::uint32_t>(at + 4),
                     .channel = load_little_endian<std::uint32_t>(at + 8),
                     .message = load_little_endian<std::uint32_t>(at + 12),
                     .sequence = sequence & ((std::uint64_t{1} << kSequenceBits) - 1),
                     .group = static_cast<std::uint16_t>(sequence >> kSequenceBits),
                     .offset = load_little_endian<std::uint64_t>(at + 24),
                     .number = load_little_endian<std::uint64_t>(at + kNumberAt),
                     .payload_checksum = load_little_endian<std::uint32_t>(at + kChecksumAt)};
  if (Status limits = check_limits(header); !limits) return tl::unexpected(limits.error());
  return header;
}

}  // namespace gradwire::net
