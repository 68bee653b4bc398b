#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/net/session_key.h"

namespace gradwire {

// What the rendezvous store and its clients say to each other once they have shaken hands. A client
// has one request under way at a time; each is answered. The answer `failed` may come unasked, and
// is the last. Integers little-endian.
//
//   request   16  kind 1, zero 1, key size 2, value size 4, wait in ms 4, zero 4; code 16;
//                 then key, value and, if there is any of these, a code 16
//   response   8  answer 1, zero 3, value size 4; code 16; then value and, if it is not empty, a
//                 code 16
//
// A code is what StoreCodes makes of the bytes before it.

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 64 * 1024;
/// Of all keys and values together.
inline constexpr std::size_t kMaxStoreBytes = 64 * 1024 * 1024;

enum class RequestKind : std::uint8_t {
  set = 1,
  get = 2,       ///< Answered when the key is there, or after `wait`.
  finish = 3,    ///< The rank has what it needs and leaves.
  join = 4,      ///< The first request: which process this is, encode(Newcomer).
  seal = 5,      ///< Of rank 0: all have joined; from now on nobody may leave, or come anew.
  complete = 6,  ///< The rank is connected. Answered when all ranks are, or after `wait`.
  fail = 7,      ///< The rank cannot go on, for the reason in the value: encode_abort().
};

enum class StoreAnswer : std::uint8_t {
  ok = 0,
  not_yet = 1,  ///< The key, or a rank, is not there; the value may say which ranks.
  full = 2,     ///< kMaxStoreBytes would be exceeded.
  failed = 3,   ///< The start has failed: encode_abort().
  later = 4,    ///< To `join`: the server may come to know that an earlier process has gone.
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

/// Authenticates what one end of a connection says: HMAC-SHA256, cut to kCodeSize, of a counter and
/// the bytes, under the connection's key. So bytes that were changed, repeated or left out are
/// found.
class StoreCodes {
 public:
  enum class Speaker : std::uint8_t { client = 1, server = 2 };

  StoreCodes(const SessionKey& key, Speaker speaker) : key_(key), speaker_(speaker) {}

  /// Of the next bytes that this end says.
  std::string next(std::string_view bytes);

  /// `bytes` with their code.
  std::string with_code(std::string_view bytes) { return std::string(bytes) + next(bytes); }

  /// Whether `bytes` end with the code of those before it, which are then left.
  bool check(std::string& bytes);

 private:
  SessionKey key_;
  Speaker speaker_;
  std::uint64_t number_ = 0;
};

std::string encode_request(RequestKind kind, std::string_view key, std::string_view value,
                           std::uint32_t wait_ms, StoreCodes& codes);
std::string encode_response(StoreAnswer answer, std::string_view value, StoreCodes& codes);

/// How many bytes follow a header whose body has `size`.
constexpr std::size_t with_code_size(std::size_t size) {
  return size == 0 ? 0 : size + kCodeSize;
}

/// From exactly kSize bytes. False if no such request may be made.
bool decode_request(std::string_view bytes, RequestHeader& header);
bool decode_response(std::string_view bytes, ResponseHeader& header);

/// What a process says about itself when it joins.
struct Newcomer {
  std::string host;    ///< For people.
  std::string job_id;  ///< Job::job_id.
};

std::string encode(const Newcomer& newcomer);
/// Never fails: of a garbled message everything is empty.
Newcomer decode_newcomer(std::string_view text);

}  // namespace gradwire
