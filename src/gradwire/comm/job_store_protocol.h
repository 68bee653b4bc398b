#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"

namespace gradwire {

// What the store of a job (comm/job_store.h) and its clients say to each other, each in a message
// of net/message_stream.h. A client has one request under way on a connection; each is answered.
// Integers little-endian.
//
//   request   operation 1, wait in ms 4, key size 4, value size 4, expected size 4; key, value,
//             expected
//   response  answer 1; value

/// The purpose of these connections (net/handshake.h).
inline constexpr const char* kJobStorePurpose = "job store";

inline constexpr std::size_t kMostKeyBytes = 4096;
/// Of value and expected value together.
inline constexpr std::size_t kMostValueBytes = 16 << 20;
inline constexpr std::size_t kMostMessageBytes = kMostKeyBytes + kMostValueBytes + 64;

enum class StoreOperation : std::uint8_t {
  set = 1,
  get = 2,   ///< Answered when the key is there, or after `wait_ms`.
  wait = 3,  ///< The same without the value.
  add = 4,   ///< value: the amount in decimal digits; so is the answer's.
  compare_set = 5,
  append = 6,
  erase = 7,  ///< The answer is not_there if there was none.
  count = 8,  ///< How many keys there are, in decimal digits.
  leave = 9,  ///< This rank will not come again to this server.
};

struct JobStoreRequest {
  StoreOperation operation = StoreOperation::get;
  std::uint32_t wait_ms = 0;
  std::string key;
  std::string value;
  std::string expected;
};

enum class JobStoreAnswer : std::uint8_t {
  ok = 0,
  not_there = 1,
  refused = 2,  ///< value: why.
};

struct JobStoreResponse {
  JobStoreAnswer answer = JobStoreAnswer::ok;
  std::string value;
};

std::string encode(const JobStoreRequest& request);
std::string encode(const JobStoreResponse& response);

/// Error: corrupted, if the bytes are no such message.
Result<JobStoreRequest> decode_job_store_request(std::string_view bytes);
Result<JobStoreResponse> decode_job_store_response(std::string_view bytes);

}  // namespace gradwire
