#include "gradwire/bootstrap/job_store_protocol.h"

#include "gradwire/base/bytes.h"

namespace gradwire::bootstrap {
namespace {

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
  if (operation < StoreOperation::set || operation > StoreOperation::leave) return false;
  const std::size_t key = size_in(bytes, 0);
  const std::size_t values = size_in(bytes, 1) + size_in(bytes, 2);
  return key <= kMaxJobStoreKeyBytes && values <= kMaxJobStoreValueBytes &&
         bytes.size() == kRequestHead + key + values;
}

}  // namespace

std::string encode(const JobStoreRequest& request) {
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

std::string encode(const JobStoreResponse& response) {
  return std::string(1, static_cast<char>(response.answer)).append(response.value);
}

Result<JobStoreRequest> decode_job_store_request(std::string_view bytes) {
  if (!is_request(bytes)) {
    return failure(ErrorKind::corrupted, "it sent a malformed request");
  }
  const std::size_t key = size_in(bytes, 0);
  const std::size_t value = size_in(bytes, 1);
  const std::string_view texts = bytes.substr(kRequestHead);
  return JobStoreRequest{.operation = static_cast<StoreOperation>(bytes[0]),
                         .wait_ms = load_little_endian<std::uint32_t>(
                             reinterpret_cast<const std::byte*>(bytes.data()) + kWaitAt),
                         .key = std::string(texts.substr(0, key)),
                         .value = std::string(texts.substr(key, value)),
                         .expected = std::string(texts.substr(key + value))};
}

Result<JobStoreResponse> decode_job_store_response(std::string_view bytes) {
  if (bytes.empty() || static_cast<JobStoreAnswer>(bytes[0]) > JobStoreAnswer::refused) {
    return failure(ErrorKind::corrupted, "it sent a malformed response");
  }
  return JobStoreResponse{.answer = static_cast<JobStoreAnswer>(bytes[0]),
                          .value = std::string(bytes.substr(1))};
}

}  // namespace gradwire::bootstrap
