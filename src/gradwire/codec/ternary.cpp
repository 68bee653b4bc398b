// TernGrad (Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep
// learning", NeurIPS 2017, equations 1 to 3). With m the maximum magnitude of a block, x becomes m
// sign(x) with probability |x| / m, else 0. That is unbiased, so there is no error feedback. The
// error is at most m. Block format: m as float32, then five values per byte, as base-3 digits.

#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/block_math.h"
#include "gradwire/codec/codecs.h"
#include "gradwire/codec/noise.h"
#include "gradwire/codec/packing.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kHeader = sizeof(float);
constexpr unsigned kPerByte = 5;  // 3^5 = 243

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::uint64_t seed,
              std::byte* __restrict encoded) {
  const std::uint32_t max_bits = max_magnitude(x, n);
  const Grid grid = grid_of(max_bits, 1);
  const std::uint32_t key = noise_key(seed, max_bits);
  store_float(encoded, grid.step);
  const std::size_t rows = packed_bytes(n, kPerByte);
  for (std::size_t j = 0; j < rows; ++j) {
    std::uint32_t number = 0;
#pragma GCC unroll 5
    for (unsigned k = 0; k < kPerByte; ++k) {
      const std::size_t i = j + k * rows;
      const float dithered = x[i] * grid.inverse + dither(key, i);
      const std::uint32_t digit = (rounded(clamped(dithered, -1, 1)) + 1u) & 3u;
      number = number * 3 + (digit < 3 ? digit : 0);
    }
    // The byte is a fraction of 256, rounded up: multiplied by 3, the next digit is the part above
    // 8 bits.
    encoded[kHeader + j] = static_cast<std::byte>((number * 256 + 242) / 243);
  }
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const float step = load_float(encoded);
  const std::size_t rows = packed_bytes(n, kPerByte);
  const std::byte* const packed = encoded + kHeader;
  for (std::size_t j = 0; j < rows; ++j) {
    auto fraction = static_cast<std::uint32_t>(packed[j]);
#pragma GCC unroll 5
    for (unsigned k = 0; k < kPerByte; ++k) {
      fraction *= 3;
      y[j + k * rows] = static_cast<float>(static_cast<std::int32_t>(fraction >> 8) - 1) * step;
      fraction &= 255u;
    }
  }
}

class Ternary final : public BlockCodec {
 public:
  std::string name() const override { return "ternary"; }
  bool wants_feedback() const override { return false; }

 private:
  std::size_t block_size() const override { return 1280; }
  std::size_t block_bytes(std::size_t n) const override {
    return kHeader + packed_bytes(n, kPerByte);
  }
  void encode_block(const float* x, std::size_t n, std::uint64_t seed,
                    std::byte* out) const override {
    to_codes(x, n, seed, out);
  }
  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t, float* y) const override {
    from_codes(in, n, y);
    return true;
  }
};

}  // namespace

std::unique_ptr<Codec> ternary_codec() {
  return std::make_unique<Ternary>();
}

}  // namespace gradwire::codec
