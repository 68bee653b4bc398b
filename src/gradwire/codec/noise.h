#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/base/vectorized.h"

/// Random numbers for codecs: functions of a seed and an index, so that loops over them vectorize.
namespace gradwire::codec {

/// Hashes 32 bits (a two-round multiply-xorshift found by Wellons' hash-prospector, 2018, constants
/// 21f0aaad d35a2d97: no input bit biases an output bit by more than 10^-7).
GRADWIRE_INLINE std::uint32_t scattered(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x21F0AAADu;
  x ^= x >> 15;
  x *= 0xD35A2D97u;
  x ^= x >> 15;
  return x;
}

/// Key of a block's noise. Ranks that share a seed draw different numbers if `own`, a property of
/// the block, differs.
GRADWIRE_INLINE std::uint32_t noise_key(std::uint64_t seed, std::uint32_t own) {
  return scattered(static_cast<std::uint32_t>(seed >> 32) ^ scattered(own)) ^
         static_cast<std::uint32_t>(seed);
}

/// Uniform in [-0.5, 0.5), in steps of 2^-24.
GRADWIRE_INLINE float dither(std::uint32_t key, std::size_t i) {
  const std::uint32_t random = scattered(key + static_cast<std::uint32_t>(i));
  return static_cast<float>(static_cast<std::int32_t>(random) >> 8) * 0x1p-24F;
}

}  // namespace gradwire::codec
