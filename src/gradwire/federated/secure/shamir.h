#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/federated/secure/crypto.h"

namespace gradwire::federated {

/// A value of a polynomial: an element of the field modulo p = 2^256 + 297, big-endian.
using Share = std::array<std::byte, 33>;

/// Shamir's secret sharing (Shamir, "How to Share a Secret", CACM 1979): a secret of 32 bytes is
/// the value at 0 of a random polynomial of degree threshold - 1. Any `threshold` shares give it
/// back; fewer say nothing about it. p is the smallest prime above 2^256, so that each secret is
/// one element. Arithmetic is OpenSSL's. Not thread-safe.
class SecretSharing {
 public:
  SecretSharing();
  ~SecretSharing();
  SecretSharing(const SecretSharing&) = delete;
  SecretSharing& operator=(const SecretSharing&) = delete;

  /// The values at these points, which are positive and distinct.
  Result<std::vector<Share>> split(const Secret& secret, int threshold, std::span<const int> points,
                                   const RandomBytes& random);

  /// The secret from the values at as many points as the threshold. Fails with refused if they are
  /// of no secret of 32 bytes.
  Result<Secret> join(std::span<const int> points, std::span<const Share> shares);

  /// Whether it is an element of the field.
  static bool is_element(const Share& share);

 private:
  class Field;
  std::unique_ptr<Field> field_;
};

}  // namespace gradwire::federated
