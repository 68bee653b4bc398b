#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "gradwire/codec/block_math.h"

/// Conversion between float32 and bf16, one value at a time.
namespace gradwire::codec {

/// A 16-bit value at any address, in memory of any type.
struct __attribute__((packed, may_alias)) PackedUint16 {
  std::uint16_t value;
};

/// Rounds to nearest, ties to even. Finite values stay finite, NaN stays NaN.
GRADWIRE_INLINE std::uint16_t to_bf16(float x) {
  constexpr std::uint32_t kMaxBf16 = 0x7F7F0000u;
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & kMagnitude;
  const std::uint32_t up = magnitude + 0x7FFFu + ((magnitude >> 16) & 1u);
  const std::uint32_t finite = up < kMaxBf16 ? up : kMaxBf16;
  // Truncating a NaN could make it an infinity.
  const std::uint32_t infinite = magnitude == kInfinity ? magnitude : 0x7FC00000u;
  const std::uint32_t rounded_magnitude = magnitude < kInfinity ? finite : infinite;
  return static_cast<std::uint16_t>((rounded_magnitude | (bits & ~kMagnitude)) >> 16);
}

GRADWIRE_INLINE float from_bf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

GRADWIRE_INLINE void store_bf16(std::byte* at, float x) {
  reinterpret_cast<PackedUint16*>(at)->value = to_bf16(x);
}

GRADWIRE_INLINE float load_bf16(const std::byte* at) {
  return from_bf16(reinterpret_cast<const PackedUint16*>(at)->value);
}

}  // namespace gradwire::codec
