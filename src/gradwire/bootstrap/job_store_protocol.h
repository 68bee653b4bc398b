#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"

namespace gradwire::bootstrap {

// Protocol between the store of a job (bootstrap/job_store.h) and its clients, each message one of
// bootstrap/message_stream.h. A client has at most one pending request per connection; each gets a
// response. Integers are little-endian.
//
//   request   operation 1, wait in ms 4, key size 4, value size 4, expected size 4; key, value,
//             expected
//   response  answer 1; value

/// The purpose of these connections (bootstrap/handshake.h).
inline constexpr const char* kJobStorePurpose = "job store";

inline constexpr std::size_t kMaxJobStoreKeyBytes = 4096;
/// Maximum size of value and expected value together.
inline constexpr std::size_t kMaxJobStoreValueBytes = 16 << 20;
inline constexpr std::size_t kMaxJobStoreMessageBytes =
    kMaxJobStoreKeyBytes + kMaxJobStoreValueBytes + 64;

enum class StoreOperation : std::uint8_t {
  set = 1,
  get = 2,   ///< Answered once the key exists, or after `wait_ms`.
  wait = 3,  ///< A get without the value.
  add = 4,   ///< value: the amount in decimal digits; the response has the sum.
  compare_set = 5,
  append = 6,
  erase = 7,  ///< The answer is not_there if the key did not exist.
  count = 8,  ///< Returns the number of keys in decimal digits.
  leave = 9,  ///< This rank will not connect to this server again.
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
  refused = 2,  ///< value: the reason.
};

struct JobStoreResponse {
  JobStoreAnswer answer = JobStoreAnswer::ok;
  std::string value;
};

std::string encode(const JobStoreRequest& request);
std::string encode(const JobStoreResponse& response);

/// Fails with corrupted if the bytes are not such a message.
Result<JobStoreRequest> decode_job_store_request(std::string_view bytes);
Result<JobStoreResponse> decode_job_store_response(std::string_view bytes);

}  // namespace gradwire::bootstrap
