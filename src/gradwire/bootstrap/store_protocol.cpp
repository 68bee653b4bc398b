#include "gradwire/bootstrap/store_protocol.h"

#include <array>

#include <nlohmann/json.hpp>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/check.h"

namespace gradwire::bootstrap {
namespace {

using Json = nlohmann::json;

std::string body_with_code(std::string body, StoreCodes& codes) {
  return body.empty() ? body : codes.with_code(body);
}

}  // namespace

std::string StoreCodes::next(std::string_view bytes) {
  std::string said(1 + sizeof number_, static_cast<char>(speaker_));
  store_little_endian(bytes_of(said) + 1, number_++);
  said.append(bytes);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
           reinterpret_cast<const unsigned char*>(said.data()), said.size(), digest.data(), &size);
  GRADWIRE_CHECK(made != nullptr && size >= kCodeSize);
  return {reinterpret_cast<const char*>(digest.data()), kCodeSize};
}

bool StoreCodes::check(std::string& bytes) {
  GRADWIRE_CHECK(bytes.size() >= kCodeSize);
  const std::string theirs = bytes.substr(bytes.size() - kCodeSize);
  bytes.resize(bytes.size() - kCodeSize);
  return CRYPTO_memcmp(next(bytes).data(), theirs.data(), kCodeSize) == 0;
}

std::string encode_request(RequestKind kind, std::string_view key, std::string_view value,
                           std::uint32_t wait_ms, StoreCodes& codes) {
  GRADWIRE_CHECK(key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes);
  std::string head(RequestHeader::kSize, '\0');
  head[0] = static_cast<char>(kind);
  store_little_endian(bytes_of(head) + 2, static_cast<std::uint16_t>(key.size()));
  store_little_endian(bytes_of(head) + 4, static_cast<std::uint32_t>(value.size()));
  store_little_endian(bytes_of(head) + 8, wait_ms);
  const std::string message = codes.with_code(head);
  return message + body_with_code(std::string(key).append(value), codes);
}

std::string encode_response(StoreAnswer answer, std::string_view value, StoreCodes& codes) {
  GRADWIRE_CHECK(value.size() <= kMaxValueBytes);
  std::string head(ResponseHeader::kSize, '\0');
  head[0] = static_cast<char>(answer);
  store_little_endian(bytes_of(head) + 4, static_cast<std::uint32_t>(value.size()));
  const std::string message = codes.with_code(head);
  return message + body_with_code(std::string(value), codes);
}

bool decode_request(std::string_view bytes, RequestHeader& header) {
  GRADWIRE_CHECK(bytes.size() == RequestHeader::kSize);
  header.kind = static_cast<RequestKind>(bytes[0]);
  header.key_size = load_little_endian<std::uint16_t>(bytes_of(bytes) + 2);
  header.value_size = load_little_endian<std::uint32_t>(bytes_of(bytes) + 4);
  header.wait_ms = load_little_endian<std::uint32_t>(bytes_of(bytes) + 8);
  const bool known = header.kind >= RequestKind::set && header.kind <= RequestKind::fail;
  return known && header.key_size <= kMaxKeyBytes && header.value_size <= kMaxValueBytes;
}

bool decode_response(std::string_view bytes, ResponseHeader& header) {
  GRADWIRE_CHECK(bytes.size() == ResponseHeader::kSize);
  header.answer = static_cast<StoreAnswer>(bytes[0]);
  header.value_size = load_little_endian<std::uint32_t>(bytes_of(bytes) + 4);
  return header.answer <= StoreAnswer::later && header.value_size <= kMaxValueBytes;
}

std::string encode(const Newcomer& newcomer) {
  const Json json = {{"host", newcomer.host}, {"job", newcomer.job_id}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Newcomer decode_newcomer(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto word = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : std::string();
  };
  return {.host = word("host"), .job_id = word("job")};
}

}  // namespace gradwire::bootstrap
