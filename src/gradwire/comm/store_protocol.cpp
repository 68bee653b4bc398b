#include "gradwire/comm/store_protocol.h"

#include "gradwire/base/bytes.h"
#include "gradwire/base/check.h"

namespace gradwire {
namespace {

std::byte* bytes_of(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
}

const std::byte* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

}  // namespace

std::string encode_request(RequestKind kind, std::string_view key, std::string_view value,
                           std::uint32_t wait_ms) {
  GRADWIRE_CHECK(key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes);
  std::string message(RequestHeader::kSize, '\0');
  message[0] = static_cast<char>(kind);
  store_little_endian(bytes_of(message) + 2, static_cast<std::uint16_t>(key.size()));
  store_little_endian(bytes_of(message) + 4, static_cast<std::uint32_t>(value.size()));
  store_little_endian(bytes_of(message) + 8, wait_ms);
  return message.append(key).append(value);
}

std::string encode_response(StoreAnswer answer, std::string_view value) {
  GRADWIRE_CHECK(value.size() <= kMaxValueBytes);
  std::string message(ResponseHeader::kSize, '\0');
  message[0] = static_cast<char>(answer);
  store_little_endian(bytes_of(message) + 4, static_cast<std::uint32_t>(value.size()));
  return message.append(value);
}

bool decode_request(std::string_view bytes, RequestHeader& header) {
  GRADWIRE_CHECK(bytes.size() == RequestHeader::kSize);
  header.kind = static_cast<RequestKind>(bytes[0]);
  header.key_size = load_little_endian<std::uint16_t>(bytes_of(bytes) + 2);
  header.value_size = load_little_endian<std::uint32_t>(bytes_of(bytes) + 4);
  header.wait_ms = load_little_endian<std::uint32_t>(bytes_of(bytes) + 8);
  const bool known = header.kind >= RequestKind::set && header.kind <= RequestKind::finish;
  return known && header.key_size <= kMaxKeyBytes && header.value_size <= kMaxValueBytes;
}

bool decode_response(std::string_view bytes, ResponseHeader& header) {
  GRADWIRE_CHECK(bytes.size() == ResponseHeader::kSize);
  header.answer = static_cast<StoreAnswer>(bytes[0]);
  header.value_size = load_little_endian<std::uint32_t>(bytes_of(bytes) + 4);
  return header.answer <= StoreAnswer::full && header.value_size <= kMaxValueBytes;
}

}  // namespace gradwire
