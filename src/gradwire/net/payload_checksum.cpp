#include "gradwire/net/payload_checksum.h"

#include <new>

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // Selects the vector width at run time.
#endif

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

/// Separates this key from the proofs of the handshake, which use the same secret and messages.
constexpr std::string_view kUse = "gradwire stream key";

/// OpenSSL's parameters are not const, but these are only read.
OSSL_PARAM octets(const char* name, const void* data, std::size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), size);
}

}  // namespace

SessionKey derive_session_key(std::string_view secret, ConstBytes transcript) {
  const std::unique_ptr<EVP_KDF, void (*)(EVP_KDF*)> hkdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                          &EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, void (*)(EVP_KDF_CTX*)> context(EVP_KDF_CTX_new(hkdf.get()),
                                                                     &EVP_KDF_CTX_free);
  std::array<char, 7> hash = {"SHA256"};
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, hash.data(), 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_SALT, transcript.data(), transcript.size()),
      octets(OSSL_KDF_PARAM_INFO, kUse.data(), kUse.size()), OSSL_PARAM_construct_end()};
  SessionKey key;
  GRADWIRE_CHECK(context &&
                 EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(key.data()),
                                key.size(), parameters) == 1);
  return key;
}

std::uint32_t payload_checksum(ConstBytes payload) {
  return static_cast<std::uint32_t>(XXH3_64bits(payload.data(), payload.size()));
}

void PayloadChecksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

void PayloadChecksum::begin(std::size_t size) {
  size_ = size;
  added_ = 0;
  if (size == 0) value_ = payload_checksum({});
}

void PayloadChecksum::add(ConstBytes piece) {
  if (piece.empty()) return;
  if (piece.size() == size_) {  // Most small payloads: avoids the cost of a state.
    value_ = payload_checksum(piece);
    return;
  }
  if (!state_) state_.reset(XXH3_createState());
  if (!state_) throw std::bad_alloc();
  if (added_ == 0) XXH3_64bits_reset(state_.get());
  XXH3_64bits_update(state_.get(), piece.data(), piece.size());
  added_ += piece.size();
  if (added_ == size_) value_ = static_cast<std::uint32_t>(XXH3_64bits_digest(state_.get()));
}

}  // namespace gradwire::net
