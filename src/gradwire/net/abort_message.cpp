#include "gradwire/net/abort_message.h"

#include <algorithm>
#include <cstring>

#include "gradwire/net/frame.h"

namespace gradwire::net {
namespace {

constexpr std::size_t kHeadBytes = 5;  // kind, origin

}  // namespace

std::vector<std::byte> encode_abort(const AbortMessage& message) {
  const std::size_t length =
      std::min<std::size_t>(message.text.size(), kMaxControlPayload - kHeadBytes);
  std::vector<std::byte> bytes(kHeadBytes + length);
  bytes[0] = static_cast<std::byte>(message.kind);
  store_little_endian(bytes.data() + 1, static_cast<std::uint32_t>(message.origin));
  std::memcpy(bytes.data() + kHeadBytes, message.text.data(), length);
  return bytes;
}

AbortMessage decode_abort(ConstBytes bytes, Rank from) {
  if (bytes.size() < kHeadBytes) return {ErrorKind::aborted, from, "(no reason given)"};
  const auto kind =
      std::min(static_cast<std::uint8_t>(bytes[0]), static_cast<std::uint8_t>(ErrorKind::aborted));
  AbortMessage message{static_cast<ErrorKind>(kind),
                       static_cast<Rank>(load_little_endian<std::uint32_t>(bytes.data() + 1)),
                       {}};
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kHeadBytes);
  message.text.assign(text, bytes.size() - kHeadBytes);
  return message;
}

}  // namespace gradwire::net
