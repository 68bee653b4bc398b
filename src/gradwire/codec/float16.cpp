#include "gradwire/codec/float16.h"

// bf16: the upper half of a float32, rounded to nearest, ties to even: the format of Google's TPUs
// (Wang and Kanwar, "BFloat16: the secret to high performance on Cloud TPUs", 2019). The error is
// at most half a unit of the 8 significant bits: 2^-9 of the next power of two above the value, so
// 2^-8 of the value. Finite values stay finite: instead of infinity they become the maximum bf16.

#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/codecs.h"

namespace gradwire::codec {
namespace {

GRADWIRE_VECTORIZED
void to_bf16_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  auto* codes = reinterpret_cast<PackedUint16*>(encoded);
  for (std::size_t i = 0; i < n; ++i) codes[i].value = to_bf16(x[i]);
}

GRADWIRE_VECTORIZED
void from_bf16_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const auto* codes = reinterpret_cast<const PackedUint16*>(encoded);
  for (std::size_t i = 0; i < n; ++i) y[i] = from_bf16(codes[i].value);
}

}  // namespace

std::unique_ptr<Codec> bf16_codec() {
  return block_codec({.name = "bf16",
                      .block_size = 1024,
                      .header_bytes = 0,
                      .bits = 16,
                      .wants_feedback = false,
                      .encode = to_bf16_codes,
                      .decode = from_bf16_codes});
}

}  // namespace gradwire::codec

// fp16: IEEE half precision, renormalized. Each block is scaled by the power of two that brings its
// maximum magnitude between 2^14 and 2^15. So nothing overflows, and only values below 2^-39 of the
// maximum underflow (loss scaling as in Micikevicius et al., "Mixed precision training", ICLR 2018,
// 3.2, but per block instead of per model). The error is at most 2^-11 of the value. Block format:
// one byte, the exponent of the maximum magnitude, then the halves.

namespace gradwire::codec {
namespace {

constexpr std::uint32_t kNotFinite = 255;

/// Returns the float32 exponent of a block's maximum magnitude, given its bits. Magnitudes below
/// 2^-112 count as 2^-112, as the scale must be a float32.
GRADWIRE_INLINE std::uint32_t exponent_of(std::uint32_t max_bits) {
  const std::uint32_t exponent = max_bits >> 23;
  return exponent < 15 ? 15 : exponent;
}

/// Rounds |x| < 2^16 to nearest, ties to even. Uses integers, as not all processors have the
/// conversion.
GRADWIRE_INLINE std::uint16_t to_half(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & kMagnitude;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14, halves are multiples of 2^-24, the last significant bit of 0.5.
  const std::uint32_t tiny = bits_of(std::bit_cast<float>(magnitude) + 0.5F) - bits_of(0.5F);
  const std::uint32_t half = magnitude < (113u << 23) ? tiny : normal;
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000u));
}

/// Converts a finite half.
GRADWIRE_INLINE float from_half(std::uint16_t half) {
  const std::uint32_t shifted = (half & 0x7FFFu) << 13;
  const std::uint32_t magnitude = bits_of(std::bit_cast<float>(shifted) * 0x1p112F);
  return std::bit_cast<float>(magnitude | ((half & 0x8000u) << 16));
}

GRADWIRE_VECTORIZED
void to_fp16_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  const std::uint32_t exponent = exponent_of(max_magnitude(x, n));
  const float factor = std::bit_cast<float>((268u - exponent) << 23);
  encoded[0] = static_cast<std::byte>(exponent);
  auto* halves = reinterpret_cast<PackedUint16*>(encoded + 1);
  for (std::size_t i = 0; i < n; ++i) halves[i].value = to_half(x[i] * factor);
}

GRADWIRE_VECTORIZED
void from_fp16_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const auto exponent = static_cast<std::uint32_t>(encoded[0]);
  const std::uint32_t inverse = exponent > 14 ? (exponent - 14) << 23 : 0;
  const float factor = exponent == kNotFinite ? kNan : std::bit_cast<float>(inverse);
  const auto* halves = reinterpret_cast<const PackedUint16*>(encoded + 1);
  // The maximum float32 was rounded up.
  for (std::size_t i = 0; i < n; ++i) {
    y[i] = clamped(from_half(halves[i].value) * factor, -kMaxFloat, kMaxFloat);
  }
}

}  // namespace

std::unique_ptr<Codec> fp16_codec() {
  return block_codec({.name = "fp16",
                      .block_size = 1024,
                      .header_bytes = 1,
                      .bits = 16,
                      .wants_feedback = false,
                      .encode = to_fp16_codes,
                      .decode = from_fp16_codes});
}

}  // namespace gradwire::codec
