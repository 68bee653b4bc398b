// two_bit: the sign and one of two magnitudes per block. Values below 1.4 times the mean magnitude
// become the mean of those values, all others the mean of the others. So each code is decoded as
// the mean of its values, as in 1-bit SGD (Seide et al., Interspeech 2014). The four levels are
// those of Max ("Quantizing for minimum distortion", IRE Trans. IT 6, 1960), whose threshold is
// 1.23 mean magnitudes for Gaussian values and 1.59 for Laplacian ones. Of the squared norm of
// Gaussian values 12 % is lost. Block format: both magnitudes as bf16, then two bits per value.

#include <bit>
#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/block_math.h"
#include "gradwire/codec/codecs.h"
#include "gradwire/codec/float16.h"
#include "gradwire/codec/packing.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kHeader = 2 * sizeof(std::uint16_t);
constexpr float kThreshold = 1.4F;

GRADWIRE_INLINE float magnitude(float x) {
  return std::bit_cast<float>(bits_of(x) & kMagnitude);
}

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  // Divide before adding, so that sums hardly overflow.
  const float share = 1.0F / static_cast<float>(n);
  const float mean = lane_sum(n, [&](std::size_t i) { return magnitude(x[i]) * share; });
  const float threshold = clamped(kThreshold * mean, 0, kMaxFloat);
  const float large = lane_sum(
      n, [&](std::size_t i) { return magnitude(x[i]) > threshold ? magnitude(x[i]) * share : 0; });
  std::int32_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += magnitude(x[i]) > threshold ? 1 : 0;
  const float larges = static_cast<float>(count) * share;
  const float low = (mean - large) / (1.0F - larges);
  const float high = larges > 0 ? large / larges : 0;
  const bool finite = max_magnitude(x, n) < kInfinity;
  store_bf16(encoded, finite ? clamped(low, 0, kMaxFloat) : kNan);
  store_bf16(encoded + kHeader / 2, finite ? clamped(high, 0, kMaxFloat) : kNan);
  const auto code = [&](std::size_t i) {
    return (bits_of(x[i]) >> 31) | (magnitude(x[i]) > threshold ? 2u : 0u);
  };
  pack<2>(n, code, encoded + kHeader);
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const std::uint32_t low = bits_of(load_bf16(encoded));
  const std::uint32_t high = bits_of(load_bf16(encoded + kHeader / 2));
  const auto value = [&](std::uint32_t code) {
    return std::bit_cast<float>((code & 2u ? high : low) ^ (code << 31));
  };
  unpack<2>(encoded + kHeader, n, value, y);
}

}  // namespace

std::unique_ptr<Codec> two_bit_codec() {
  return block_codec({.name = "two_bit",
                      .block_size = 512,
                      .header_bytes = kHeader,
                      .bits = 2,
                      .wants_feedback = true,
                      .encode = to_codes,
                      .decode = from_codes});
}

}  // namespace gradwire::codec
