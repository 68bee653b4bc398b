#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire {

// What the rendezvous store and its clients say to each other once they have shaken hands. A client
// has one request under way at a time; each is answered. Integers little-endian.
//
//   request   16  kind 1, zero 1, key size 2, value size 4, wait in ms 4, zero 4; then key, value
//   response   8  answer 1, zero 3, value size 4; then value

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 64 * 1024;
/// Of all keys and values together.
inline constexpr std::size_t kMaxStoreBytes = 64 * 1024 * 1024;

enum class RequestKind : std::uint8_t {
  set = 1,
  get = 2,     ///< Answered when the key is there, or after `wait`.
  finish = 3,  ///< The rank has what it needs and leaves.
};

enum class StoreAnswer : std::uint8_t {
  ok = 0,
  not_yet = 1,  ///< The key is not there.
  full = 2,     ///< kMaxStoreBytes would be exceeded.
};

struct RequestHeader {
  static constexpr std::size_t kSize = 16;
  RequestKind kind = RequestKind::get;
  std::uint16_t key_size = 0;
  std::uint32_t value_size = 0;
  std::uint32_t wait_ms = 0;
};

struct ResponseHeader {
  static constexpr std::size_t kSize = 8;
  StoreAnswer answer = StoreAnswer::ok;
  std::uint32_t value_size = 0;
};

std::string encode_request(RequestKind kind, std::string_view key, std::string_view value,
                           std::uint32_t wait_ms);
std::string encode_response(StoreAnswer answer, std::string_view value);

/// From exactly kSize bytes. False if no such request may be made.
bool decode_request(std::string_view bytes, RequestHeader& header);
bool decode_response(std::string_view bytes, ResponseHeader& header);

}  // namespace gradwire
