#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/secure/crypto.h"

namespace gradwire::federated {

/// A pseudorandom term of the sum: of each segment, the key stream of AES-256-CTR as little-endian
/// words, under the key HKDF(secret, "mask" | digest_of_round() | segment).
struct Mask {
  Secret secret;
  bool is_negative = false;
};

/// Adds all masks, or subtracts those that are negative, elementwise. `round`: digest_of_round().
/// Each thread has elements of its own, so that the result does not depend on their number.
Status add_masks(std::span<const Mask> masks, const Digest& round,
                 std::span<ModularVector> segments, int threads = 1);

/// Calls function(i) once for each i below `count`, on `threads` threads. Returns the first error.
Status on_threads(int threads, std::size_t count,
                  const std::function<Status(std::size_t)>& function);

}  // namespace gradwire::federated
