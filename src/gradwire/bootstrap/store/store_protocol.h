#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::bootstrap {

// Protocol between a store server (bootstrap/store/store_server.h) and its clients, each message
// one of bootstrap/store/message_stream.h. A client has at most one pending request per connection;
// each gets a response. The answer `failed` may also come without a request, and is then the last
// message. Integers are little-endian.
//
//   request   operation 1, wait in ms 4, key size 4, value size 4, expected size 4; key, value,
//             expected
//   response  answer 1; value

/// The purpose of these connections (bootstrap/handshake/handshake.h).
inline constexpr const char* kStorePurpose = "store";

inline constexpr std::size_t kMaxStoreKeyBytes = 4096;
/// Maximum size of value and expected value together.
inline constexpr std::size_t kMaxStoreValueBytes = 16 << 20;
inline constexpr std::size_t kMaxStoreMessageBytes = kMaxStoreKeyBytes + kMaxStoreValueBytes + 64;

/// A host that has lost power or its network closes no connection. While a job starts, keep-alive
/// ends a connection after this time without a response. A job's store has none: it survives an
/// outage of the network as the job does.
inline constexpr Duration kStoreDeadAfter = std::chrono::seconds(5);

enum class StoreOperation : std::uint8_t {
  set = 1,
  get = 2,   ///< Answered once the key exists, or after `wait_ms`.
  wait = 3,  ///< A get without the value.
  add = 4,   ///< value: the amount in decimal digits; the response has the sum.
  compare_set = 5,
  append = 6,
  erase = 7,  ///< The answer is not_there if the key did not exist.
  count = 8,  ///< Returns the number of keys in decimal digits.
  leave = 9,  ///< This client will not connect to this server again.
  // The start of a job (bootstrap/store/start_state.h):
  exchange = 10,  ///< key: Job::job_id; value: the rank's endpoint. Answered once all ranks have
                  ///< sent theirs, with encode_endpoints(); or after `wait_ms`, not_there with
                  ///< encode(MissingRanks).
  complete = 11,  ///< The rank is connected to all others. Answered once all ranks are; or after
                  ///< `wait_ms`, not_there with text that names the others.
  fail = 12,      ///< The rank has failed; value: the reason, encode_abort().
};

struct StoreRequest {
  StoreOperation operation = StoreOperation::get;
  std::uint32_t wait_ms = 0;
  std::string key;
  std::string value;
  std::string expected;
};

enum class StoreAnswer : std::uint8_t {
  ok = 0,
  not_there = 1,
  refused = 2,  ///< value: the reason.
  failed = 3,   ///< The start has failed; value: encode_abort().
  later = 4,    ///< To `exchange`: retry; an earlier process of the rank may be about to exit.
};

struct StoreResponse {
  StoreAnswer answer = StoreAnswer::ok;
  std::string value;
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreResponse& response);

/// Fails with corrupted if the bytes are not such a message.
Result<StoreRequest> decode_store_request(std::string_view bytes);
Result<StoreResponse> decode_store_response(std::string_view bytes);

/// Encodes a list of texts, by rank, as JSON. Bytes that are not UTF-8 are replaced.
std::string encode_endpoints(const std::vector<std::string>& endpoints);
/// Fails with corrupted.
Result<std::vector<std::string>> decode_endpoints(std::string_view text);

/// The ranks that keep a start from completing.
struct MissingRanks {
  std::vector<Rank> ranks;
  /// Names of the last processes of those ranks that had connected and ended.
  std::vector<std::string> ended;
};

std::string encode(const MissingRanks& missing);
/// Never fails: malformed text decodes to empty lists.
MissingRanks decode_missing_ranks(std::string_view text);

}  // namespace gradwire::bootstrap
