#include "gradwire/net/session_key.h"

#include <memory>

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "gradwire/base/check.h"

namespace gradwire {
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

}  // namespace gradwire
