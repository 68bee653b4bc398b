#include "gradwire/federated/secure/crypto.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

struct OpenSslDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  void operator()(EVP_KDF* function) const { EVP_KDF_free(function); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};
template <class T>
using Owned = std::unique_ptr<T, OpenSslDeleter>;

unsigned char* out(Bytes bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* in(ConstBytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

tl::unexpected<Error> openssl_failure(std::string_view what) {
  char reason[256];
  ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
  ERR_clear_error();
  return failure(ErrorKind::system, fmt::format("OpenSSL cannot {}: {}", what, reason));
}

Owned<EVP_PKEY> private_key(int type, const Secret& secret) {
  return Owned<EVP_PKEY>(
      EVP_PKEY_new_raw_private_key(type, nullptr, in(secret.bytes()), secret.bytes().size()));
}

Owned<EVP_PKEY> public_key(int type, const PublicKey& key) {
  return Owned<EVP_PKEY>(EVP_PKEY_new_raw_public_key(type, nullptr, in(key), key.size()));
}

Result<PublicKey> public_part(const EVP_PKEY* key) {
  PublicKey shared;
  std::size_t size = shared.size();
  if (key == nullptr || EVP_PKEY_get_raw_public_key(key, out(shared), &size) != 1)
    return openssl_failure("compute a public key");
  return shared;
}

}  // namespace

Status system_random_bytes(Bytes bytes) {
  if (RAND_bytes(out(bytes), static_cast<int>(bytes.size())) != 1)
    return openssl_failure("draw random bytes");
  return {};
}

Secret::~Secret() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

Result<Secret> Secret::draw(const RandomBytes& random) {
  Secret secret;
  GRADWIRE_RETURN_IF_ERROR(random(secret.bytes()));
  return secret;
}

Digest sha256(ConstBytes bytes) {
  Digest digest;
  GRADWIRE_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), out(digest), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

Result<AgreementKey> AgreementKey::of(const Secret& secret) {
  Owned<EVP_PKEY> pair = private_key(EVP_PKEY_X25519, secret);
  AgreementKey key;
  GRADWIRE_ASSIGN_OR_RETURN(key.shared_, public_part(pair.get()));
  key.key_ = std::move(pair);
  return key;
}

Result<Secret> AgreementKey::agree(const PublicKey& theirs) const {
  const Owned<EVP_PKEY> peer = public_key(EVP_PKEY_X25519, theirs);
  const Owned<EVP_PKEY_CTX> context(EVP_PKEY_CTX_new(static_cast<EVP_PKEY*>(key_.get()), nullptr));
  if (!peer || !context || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1)
    return openssl_failure("prepare a key agreement");
  Secret agreed;
  std::size_t size = agreed.bytes().size();
  if (EVP_PKEY_derive(context.get(), out(agreed.bytes()), &size) != 1) {
    ERR_clear_error();
    return failure(ErrorKind::refused, "a public key is of small order: its secret is no secret");
  }
  return agreed;
}

Result<PublicKey> ed25519_public(const Secret& secret) {
  return public_part(private_key(EVP_PKEY_ED25519, secret).get());
}

Result<Signature> ed25519_sign(const Secret& secret, ConstBytes message) {
  const Owned<EVP_PKEY> key = private_key(EVP_PKEY_ED25519, secret);
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  Signature signature;
  std::size_t size = signature.size();
  if (!key || !context ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), out(signature), &size, in(message), message.size()) != 1)
    return openssl_failure("sign");
  return signature;
}

bool ed25519_verifies(const PublicKey& key, ConstBytes message, const Signature& signature) {
  const Owned<EVP_PKEY> signer = public_key(EVP_PKEY_ED25519, key);
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const bool verifies =
      signer && context &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, signer.get()) == 1 &&
      EVP_DigestVerify(context.get(), in(signature), signature.size(), in(message),
                       message.size()) == 1;
  ERR_clear_error();
  return verifies;
}

Status hkdf_sha256(ConstBytes key, ConstBytes salt, ConstBytes info, Bytes output) {
  const Owned<EVP_KDF> function(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const Owned<EVP_KDF_CTX> context(EVP_KDF_CTX_new(function.get()));
  char digest[] = "SHA256";
  const auto octets = [](const char* name, ConstBytes bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                             bytes.size());
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, key), octets(OSSL_KDF_PARAM_INFO, info),
      salt.empty() ? OSSL_PARAM_construct_end() : octets(OSSL_KDF_PARAM_SALT, salt),
      OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), out(output), output.size(), parameters) != 1)
    return openssl_failure("derive a key");
  return {};
}

Result<Secret> derive(const Secret& key, ConstBytes info) {
  Secret derived;
  GRADWIRE_RETURN_IF_ERROR(hkdf_sha256(key.bytes(), {}, info, derived.bytes()));
  return derived;
}

Result<std::vector<std::byte>> seal(const Secret& key, const GcmNonce& nonce, ConstBytes associated,
                                    ConstBytes plain) {
  const Owned<EVP_CIPHER_CTX> context(EVP_CIPHER_CTX_new());
  std::vector<std::byte> sealed(plain.size() + kSealBytes);
  int size = 0;
  if (!context ||
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, in(key.bytes()), in(nonce)) !=
          1 ||
      EVP_EncryptUpdate(context.get(), nullptr, &size, in(associated),
                        static_cast<int>(associated.size())) != 1 ||
      EVP_EncryptUpdate(context.get(), out(sealed), &size, in(plain),
                        static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(context.get(), out(sealed) + plain.size(), &size) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kSealBytes,
                          sealed.data() + plain.size()) != 1)
    return openssl_failure("encrypt");
  return sealed;
}

Result<std::vector<std::byte>> open(const Secret& key, const GcmNonce& nonce, ConstBytes associated,
                                    ConstBytes sealed) {
  if (sealed.size() < kSealBytes)
    return failure(ErrorKind::refused, "a sealed message is shorter than its tag");
  const ConstBytes inside = sealed.first(sealed.size() - kSealBytes);
  std::array<std::byte, kSealBytes> tag;
  std::ranges::copy(sealed.last(kSealBytes), tag.begin());
  const Owned<EVP_CIPHER_CTX> context(EVP_CIPHER_CTX_new());
  std::vector<std::byte> plain(inside.size());
  int size = 0;
  if (!context ||
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, in(key.bytes()), in(nonce)) !=
          1 ||
      EVP_DecryptUpdate(context.get(), nullptr, &size, in(associated),
                        static_cast<int>(associated.size())) != 1 ||
      EVP_DecryptUpdate(context.get(), out(plain), &size, in(inside),
                        static_cast<int>(inside.size())) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kSealBytes, tag.data()) != 1)
    return openssl_failure("decrypt");
  if (EVP_DecryptFinal_ex(context.get(), out(plain) + plain.size(), &size) != 1) {
    OPENSSL_cleanse(plain.data(), plain.size());
    return failure(ErrorKind::refused, "a sealed message was altered, or is for somebody else");
  }
  return plain;
}

struct KeyStream::Cipher {
  Owned<EVP_CIPHER_CTX> context{EVP_CIPHER_CTX_new()};
};

KeyStream::KeyStream() : cipher_(std::make_unique<Cipher>()) {}
KeyStream::~KeyStream() = default;

Status KeyStream::start(const Secret& key, const Counter& counter) {
  EVP_CIPHER_CTX* const context = cipher_->context.get();
  const bool is_new = context != nullptr && EVP_CIPHER_CTX_get0_cipher(context) == nullptr;
  if (context == nullptr || EVP_EncryptInit_ex(context, is_new ? EVP_aes_256_ctr() : nullptr,
                                               nullptr, in(key.bytes()), in(counter)) != 1)
    return openssl_failure("start a key stream");
  return {};
}

Status KeyStream::start_at_block(const Secret& key, std::uint64_t block) {
  Counter counter{};
  for (std::size_t i = 0; i < sizeof block; ++i)
    counter[counter.size() - 1 - i] = static_cast<std::byte>(block >> (8 * i));
  return start(key, counter);
}

Status KeyStream::fill(Bytes bytes) {
  static constexpr std::array<std::byte, 16 * 1024> kZeros{};
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), kZeros.size()));
    int size = 0;
    if (EVP_EncryptUpdate(cipher_->context.get(), out(part), &size, in(kZeros),
                          static_cast<int>(part.size())) != 1)
      return openssl_failure("continue a key stream");
    bytes = bytes.subspan(part.size());
  }
  return {};
}

}  // namespace gradwire::federated
