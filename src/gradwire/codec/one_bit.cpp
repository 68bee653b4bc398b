// one_bit: the sign, times the mean magnitude of the block: 1-bit SGD (Seide et al., "1-bit
// stochastic gradient descent and its application to data-parallel distributed training of speech
// DNNs", Interspeech 2014) with the scale ||x||_1 / n of EF-signSGD (Karimireddy et al., "Error
// feedback fixes signSGD", ICML 2019, algorithm 1). Of the squared norm of Gaussian values 1 - 2/pi
// = 36 % is lost; at worst all but 1/n. Blocks are small: the residual of a value that is always
// above the mean grows until the mean reaches that value, in proportion to n. Block format: the
// mean as bf16, then a bit per value.

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

constexpr std::size_t kHeader = sizeof(std::uint16_t);

/// Returns the mean of |x[i]|. Divides before adding, so that the sum hardly overflows.
GRADWIRE_INLINE float mean_magnitude(const float* __restrict x, std::size_t n) {
  const float share = 1.0F / static_cast<float>(n);
  return lane_sum(
      n, [&](std::size_t i) { return std::bit_cast<float>(bits_of(x[i]) & kMagnitude) * share; });
}

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  const float mean = clamped(mean_magnitude(x, n), 0, kMaxFloat);
  store_bf16(encoded, max_magnitude(x, n) < kInfinity ? mean : kNan);
  pack<1>(
      n, [&](std::size_t i) { return bits_of(x[i]) >> 31; }, encoded + kHeader);
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const std::uint32_t mean = bits_of(load_bf16(encoded));
  const auto value = [&](std::uint32_t sign) { return std::bit_cast<float>(mean ^ (sign << 31)); };
  unpack<1>(encoded + kHeader, n, value, y);
}

}  // namespace

std::unique_ptr<Codec> one_bit_codec() {
  return block_codec({.name = "one_bit",
                      .block_size = 256,
                      .header_bytes = kHeader,
                      .bits = 1,
                      .wants_feedback = true,
                      .encode = to_codes,
                      .decode = from_codes});
}

}  // namespace gradwire::codec
