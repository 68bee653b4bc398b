#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/federated/secure/public_key.h"

/// The cryptography of secure aggregation, all of it OpenSSL's. Functions fail with
/// ErrorKind::system if OpenSSL fails, and with `refused` if a peer's bytes are at fault.
namespace gradwire::federated {

/// Fills a span with random bytes: an argument, so that simulations repeat.
using RandomBytes = std::function<Status(Bytes)>;
/// OpenSSL's generator, for everything but tests.
Status system_random_bytes(Bytes bytes);

/// 32 bytes that are wiped from memory when they are destroyed.
class Secret {
 public:
  Secret() = default;
  explicit Secret(const std::array<std::byte, 32>& bytes) : bytes_(bytes) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();
  static Result<Secret> draw(const RandomBytes& random);

  ConstBytes bytes() const { return bytes_; }
  Bytes bytes() { return bytes_; }
  bool operator==(const Secret& other) const { return bytes_ == other.bytes_; }

 private:
  std::array<std::byte, 32> bytes_{};
};

using Signature = std::array<std::byte, 64>;

Digest sha256(ConstBytes bytes);

/// A key pair of X25519 (RFC 7748).
class AgreementKey {
 public:
  static Result<AgreementKey> of(const Secret& secret);

  const PublicKey& shared() const { return shared_; }
  /// The secret of two key pairs. Fails with refused for a public key of small order.
  Result<Secret> agree(const PublicKey& theirs) const;

 private:
  std::shared_ptr<void> key_;  ///< OpenSSL's EVP_PKEY, which is costly to make.
  PublicKey shared_{};
};

/// Ed25519 (RFC 8032).
Result<PublicKey> ed25519_public(const Secret& secret);
Result<Signature> ed25519_sign(const Secret& secret, ConstBytes message);
bool ed25519_verifies(const PublicKey& key, ConstBytes message, const Signature& signature);

/// HKDF-SHA256 (RFC 5869), output.size() bytes of it.
Status hkdf_sha256(ConstBytes key, ConstBytes salt, ConstBytes info, Bytes output);
/// The 32 bytes of HKDF without salt.
Result<Secret> derive(const Secret& key, ConstBytes info);

/// AES-256-GCM (NIST SP 800-38D): the ciphertext and then a tag of 16 bytes. A key seals a single
/// message, or each with another nonce.
using GcmNonce = std::array<std::byte, 12>;
inline constexpr std::size_t kSealBytes = 16;
Result<std::vector<std::byte>> seal(const Secret& key, const GcmNonce& nonce, ConstBytes associated,
                                    ConstBytes plain);
/// Inverse of seal(). Fails with refused if a byte of it, or of the associated data, is another.
Result<std::vector<std::byte>> open(const Secret& key, const GcmNonce& nonce, ConstBytes associated,
                                    ConstBytes sealed);

/// The key stream of AES-256-CTR (NIST SP 800-38A).
class KeyStream {
 public:
  using Counter = std::array<std::byte, 16>;
  static constexpr std::size_t kBlockBytes = 16;

  KeyStream();
  ~KeyStream();
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  /// fill() goes on with the stream of this key from here.
  Status start(const Secret& key, const Counter& counter);
  /// From this block of the stream whose counter begins with 0.
  Status start_at_block(const Secret& key, std::uint64_t block);
  Status fill(Bytes bytes);

 private:
  struct Cipher;
  std::unique_ptr<Cipher> cipher_;
};

}  // namespace gradwire::federated
