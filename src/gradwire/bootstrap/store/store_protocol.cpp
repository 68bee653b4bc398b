#include "gradwire/bootstrap/store/store_protocol.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/bytes.h"

namespace gradwire::bootstrap {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kWaitAt = 1;
constexpr std::size_t kSizesAt = 5;
constexpr std::size_t kRequestHead = kSizesAt + 3 * 4;

/// Returns the size in field `which` (0: key, 1: value, 2: expected).
std::size_t size_in(std::string_view request, std::size_t which) {
  return load_little_endian<std::uint32_t>(reinterpret_cast<const std::byte*>(request.data()) +
                                           kSizesAt + 4 * which);
}

bool is_request(std::string_view bytes) {
  if (bytes.size() < kRequestHead) return false;
  const auto operation = static_cast<StoreOperation>(bytes[0]);
  if (operation < StoreOperation::set || operation > StoreOperation::fail) return false;
  const std::size_t key = size_in(bytes, 0);
  const std::size_t values = size_in(bytes, 1) + size_in(bytes, 2);
  return key <= kMaxStoreKeyBytes && values <= kMaxStoreValueBytes &&
         bytes.size() == kRequestHead + key + values;
}

/// Replaces bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string encode(const StoreRequest& request) {
  std::string bytes(kRequestHead, '\0');
  bytes[0] = static_cast<char>(request.operation);
  store_little_endian(bytes_of(bytes) + kWaitAt, request.wait_ms);
  std::size_t at = kSizesAt;
  for (const std::string* text : {&request.key, &request.value, &request.expected}) {
    store_little_endian(bytes_of(bytes) + at, static_cast<std::uint32_t>(text->size()));
    at += 4;
  }
  return bytes.append(request.key).append(request.value).append(request.expected);
}

std::string encode(const StoreResponse& response) {
  return std::string(1, static_cast<char>(response.answer)).append(response.value);
}

Result<StoreRequest> decode_store_request(std::string_view bytes) {
  if (!is_request(bytes)) {
    return failure(ErrorKind::corrupted, "it sent a malformed request");
  }
  const std::size_t key = size_in(bytes, 0);
  const std::size_t value = size_in(bytes, 1);
  const std::string_view texts = bytes.substr(kRequestHead);
  return StoreRequest{.operation = static_cast<StoreOperation>(bytes[0]),
                      .wait_ms = load_little_endian<std::uint32_t>(
                          reinterpret_cast<const std::byte*>(bytes.data()) + kWaitAt),
                      .key = std::string(texts.substr(0, key)),
                      .value = std::string(texts.substr(key, value)),
                      .expected = std::string(texts.substr(key + value))};
}

Result<StoreResponse> decode_store_response(std::string_view bytes) {
  if (bytes.empty() || static_cast<StoreAnswer>(bytes[0]) > StoreAnswer::later) {
    return failure(ErrorKind::corrupted, "it sent a malformed response");
  }
  return StoreResponse{.answer = static_cast<StoreAnswer>(bytes[0]),
                       .value = std::string(bytes.substr(1))};
}

std::string encode_endpoints(const std::vector<std::string>& endpoints) {
  return text_of(Json(endpoints));
}

Result<std::vector<std::string>> decode_endpoints(std::string_view text) {
  const Json list = parse(text);
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (!list.is_array() || !std::ranges::all_of(list, is_text)) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the store has this in place of the ranks' endpoints: {}",
                               text.substr(0, 100)));
  }
  return list.get<std::vector<std::string>>();
}

std::string encode(const MissingRanks& missing) {
  return text_of({{"ranks", missing.ranks}, {"ended", missing.ended}});
}

MissingRanks decode_missing_ranks(std::string_view text) {
  const Json json = parse(text);
  MissingRanks missing;
  if (!json.is_object()) return missing;
  for (const Json& rank : json.value("ranks", Json::array())) {
    if (rank.is_number_integer()) missing.ranks.push_back(rank.get<Rank>());
  }
  for (const Json& name : json.value("ended", Json::array())) {
    if (name.is_string()) missing.ended.push_back(name.get<std::string>());
  }
  return missing;
}

}  // namespace gradwire::bootstrap
