#include "tests/fuzz/frames.h"

#include <algorithm>
#include <array>

#include "gradwire/net/payload_checksum.h"

namespace gradwire::fuzz {

void FrameStream::add(net::FrameHeader header, std::string_view payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  header.number = frames_++;
  header.payload_checksum = net::payload_checksum(std::as_bytes(std::span(payload)));
  std::array<std::byte, net::kFrameHeaderBytes> head;
  encode(header, head);
  text_.append(reinterpret_cast<const char*>(head.data()), head.size());
  text_.append(payload);
}

std::uint64_t seal_frames(std::span<char> stream, std::uint64_t first) {
  const Bytes bytes = std::as_writable_bytes(stream);
  std::uint64_t number = first;
  for (std::size_t at = 0; at + net::kFrameHeaderBytes <= bytes.size(); ++number) {
    const auto head = bytes.subspan(at).first<net::kFrameHeaderBytes>();
    const std::size_t left = bytes.size() - at - net::kFrameHeaderBytes;
    // The fields of net/frame.h; fields not named here keep their values.
    net::FrameHeader header{.type = static_cast<net::FrameType>(head[3]),
                            .length = load_little_endian<std::uint32_t>(&head[4]),
                            .channel = load_little_endian<std::uint32_t>(&head[8]),
                            .message = load_little_endian<std::uint32_t>(&head[12]),
                            .sequence = load_little_endian<std::uint64_t>(&head[16]),
                            .offset = load_little_endian<std::uint64_t>(&head[24]),
                            .number = number};
    header.length = static_cast<std::uint32_t>(std::min<std::size_t>(header.length, left));
    header.payload_checksum =
        net::payload_checksum(bytes.subspan(at + net::kFrameHeaderBytes, header.length));
    encode(header, head);
    at += net::kFrameHeaderBytes + header.length;
  }
  return number;
}

}  // namespace gradwire::fuzz
