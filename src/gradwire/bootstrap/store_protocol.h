#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/net/payload_checksum.h"

namespace gradwire::bootstrap {

// Protocol between the rendezvous store and its clients after the handshake. A client has one
// pending request at a time; each gets a response. The answer `failed` may come unsolicited, and is
// the last one. Integers are little-endian.
//
//   request   16  kind 1, zero 1, key size 2, value size 4, wait in ms 4, zero 4; code 16;
//                 then key, value and, unless both are empty, a code 16
//   response   8  answer 1, zero 3, value size 4; code 16; then value and, if it is not empty, a
//                 code 16
//
// A code is the StoreCodes code of the bytes before it.

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 64 * 1024;
/// Maximum bytes of all keys and values together.
inline constexpr std::size_t kMaxStoreBytes = 64 * 1024 * 1024;

enum class RequestKind : std::uint8_t {
  set = 1,
  get = 2,       ///< Answered once the key exists, or after `wait`.
  finish = 3,    ///< The rank is done and leaves.
  join = 4,      ///< First request: identifies the process, encode(Newcomer).
  seal = 5,      ///< From rank 0: all have joined; no rank may leave or rejoin after this.
  complete = 6,  ///< The rank is connected. Answered once all ranks are, or after `wait`.
  fail = 7,      ///< The rank has failed; the value is the reason: encode_abort().
};

enum class StoreAnswer : std::uint8_t {
  ok = 0,
  not_yet = 1,  ///< A key or a rank is missing; the value may name the ranks.
  full = 2,     ///< kMaxStoreBytes would be exceeded.
  failed = 3,   ///< The start has failed: encode_abort().
  later = 4,    ///< To `join`: retry; the server may detect that an earlier process has exited.
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

inline constexpr std::size_t kCodeSize = 16;

/// Authenticates the messages of one end of a connection: HMAC-SHA256, truncated to kCodeSize, of a
/// counter and the bytes, with the connection's key. It detects modified, repeated and missing
/// bytes.
class StoreCodes {
 public:
  enum class Speaker : std::uint8_t { client = 1, server = 2 };

  StoreCodes(const net::SessionKey& key, Speaker speaker) : key_(key), speaker_(speaker) {}

  /// Returns the code of the next bytes that this end sends.
  std::string next(std::string_view bytes);

  /// Returns `bytes` followed by their code.
  std::string with_code(std::string_view bytes) { return std::string(bytes) + next(bytes); }

  /// Returns true if `bytes` end with the correct code, which is removed.
  bool check(std::string& bytes);

 private:
  net::SessionKey key_;
  Speaker speaker_;
  std::uint64_t number_ = 0;
};

std::string encode_request(RequestKind kind, std::string_view key, std::string_view value,
                           std::uint32_t wait_ms, StoreCodes& codes);
std::string encode_response(StoreAnswer answer, std::string_view value, StoreCodes& codes);

/// Returns the number of bytes that follow a header whose body has `size` bytes.
constexpr std::size_t with_code_size(std::size_t size) {
  return size == 0 ? 0 : size + kCodeSize;
}

/// Decodes exactly kSize bytes. Returns false if the header is invalid.
bool decode_request(std::string_view bytes, RequestHeader& header);
bool decode_response(std::string_view bytes, ResponseHeader& header);

/// A process's description of itself when it joins.
struct Newcomer {
  std::string host;    ///< For messages.
  std::string job_id;  ///< Job::job_id.
};

std::string encode(const Newcomer& newcomer);
/// Never fails: a malformed message decodes to empty fields.
Newcomer decode_newcomer(std::string_view text);

}  // namespace gradwire::bootstrap
