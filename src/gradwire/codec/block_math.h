#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gradwire/base/vectorized.h"

/// Arithmetic of codecs on blocks of values. Results are bitwise equal on all processors.
namespace gradwire::codec {

inline constexpr float kMaxFloat = std::numeric_limits<float>::max();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The bits of magnitudes, as integers, have the same order as the magnitudes; infinity, then NaN,
/// are the largest.
inline constexpr std::uint32_t kMagnitude = 0x7FFFFFFFu;
inline constexpr std::uint32_t kInfinity = 0x7F800000u;

GRADWIRE_INLINE std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// Returns the bits of the maximum |x[i]|.
GRADWIRE_INLINE std::uint32_t max_magnitude(const float* __restrict x, std::size_t n) {
  std::int32_t max_bits = 0;  // Signed, which AVX2 and SSE4 compare natively.
  for (std::size_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::int32_t>(bits_of(x[i]) & kMagnitude);
    max_bits = magnitude > max_bits ? magnitude : max_bits;
  }
  return static_cast<std::uint32_t>(max_bits);
}

/// Returns the sum of term(i) for i < n, rounded up to a multiple of 16. It uses sixteen partial
/// sums, so that the order of additions does not depend on the processor.
template <class Term>
GRADWIRE_INLINE float lane_sum(std::size_t n, Term term) {
  constexpr std::size_t kLanes = 16;
  constexpr std::size_t kChunk = 8 * kLanes;  // Terms per inner loop, to be vectorized.
  // AVX2 width: compilers spill vectors wider than the processor's to memory.
  typedef float HalfOfLanes __attribute__((vector_size(kLanes / 2 * sizeof(float))));
  HalfOfLanes lower = {};
  HalfOfLanes upper = {};
  alignas(64) float terms[kChunk];
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t left = (n - begin + kLanes - 1) / kLanes * kLanes;
    const std::size_t size = left < kChunk ? left : kChunk;
    for (std::size_t i = 0; i < size; ++i) terms[i] = term(begin + i);
    for (std::size_t i = 0; i < size; i += kLanes) {
      HalfOfLanes some;
      std::memcpy(&some, terms + i, sizeof some);
      lower += some;
      std::memcpy(&some, terms + i + kLanes / 2, sizeof some);
      upper += some;
    }
  }
  float sum = 0;
  for (std::size_t lane = 0; lane < kLanes / 2; ++lane) sum += lower[lane];
  for (std::size_t lane = 0; lane < kLanes / 2; ++lane) sum += upper[lane];
  return sum;
}

/// Quantization grid of a block: x becomes about rounded(x * inverse) * step.
struct Grid {
  float step = 0;     ///< NaN if a value is not finite, hence every multiple too.
  float inverse = 0;  ///< Always finite.
};

/// Returns the grid whose `levels`-th multiple is the magnitude with the bits `max_bits`, or
/// slightly less at the limits of float32. Steps are at least 10^-36, so that the inverse is
/// finite; the largest multiple is finite too.
GRADWIRE_INLINE Grid grid_of(std::uint32_t max_bits, float levels) {
  const float top = std::bit_cast<float>(max_bits);
  const float high = kMaxFloat * 0.99999F;
  const float limited = top > high ? high : top;
  const float step = limited / levels;
  const float safe = step > 1e-36F ? step : 1e-36F;
  return {.step = max_bits < kInfinity ? safe : kNan, .inverse = 1.0F / safe};
}

/// Rounds |x| < 2^22 to the nearest integer, ties to even, in the low bits (two's complement): adds
/// a number whose last significant bit is the unit.
GRADWIRE_INLINE std::uint32_t rounded(float x) {
  return bits_of(x + 12582912.0F);
}

GRADWIRE_INLINE float clamped(float x, float low, float high) {
  const float above = x < low ? low : x;
  return above > high ? high : above;
}

GRADWIRE_INLINE void store_float(std::byte* at, float x) {
  std::memcpy(at, &x, sizeof x);
}

GRADWIRE_INLINE float load_float(const std::byte* at) {
  float x;
  std::memcpy(&x, at, sizeof x);
  return x;
}

}  // namespace gradwire::codec
