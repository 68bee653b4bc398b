// QSGD (Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and
// encoding", NeurIPS 2017, 3.1). With s levels and m the maximum magnitude of a block, x s / m is
// rounded stochastically, without bias, and decoded as the result times m / s. (The theorems divide
// by the block's norm; the experiments, as here, by its maximum: section 5.) BITS = b gives s =
// 2^(b-1) - 1. Each rank's values are unbiased, so there is no error feedback. The error is less
// than m / s. Block format: m / s as float32, then the codes.

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

template <unsigned kBits>
GRADWIRE_INLINE void encode_bits(const float* __restrict x, std::size_t n, std::uint64_t seed,
                                 std::byte* __restrict encoded) {
  constexpr std::uint32_t kZero = 1u << (kBits - 1);
  constexpr auto kLevels = static_cast<float>(kZero - 1);
  const std::uint32_t max_bits = max_magnitude(x, n);
  const Grid grid = grid_of(max_bits, kLevels);
  const std::uint32_t key = noise_key(seed, max_bits);
  store_float(encoded, grid.step);
  const auto code = [&](std::size_t i) {
    const float dithered = x[i] * grid.inverse + dither(key, i);
    return (rounded(clamped(dithered, -kLevels, kLevels)) + kZero) & (2 * kZero - 1);
  };
  pack<kBits>(n, code, encoded + kHeader);
}

template <unsigned kBits>
GRADWIRE_INLINE void decode_bits(const std::byte* __restrict encoded, std::size_t n,
                                 float* __restrict y) {
  constexpr std::int32_t kZero = 1 << (kBits - 1);
  const float step = load_float(encoded);
  const auto value = [&](std::uint32_t code) {
    return static_cast<float>(static_cast<std::int32_t>(code) - kZero) * step;
  };
  unpack<kBits>(encoded + kHeader, n, value, y);
}

GRADWIRE_VECTORIZED
void to_codes(int bits, const float* __restrict x, std::size_t n, std::uint64_t seed,
              std::byte* __restrict encoded) {
  if (bits == 2) return encode_bits<2>(x, n, seed, encoded);
  if (bits == 4) return encode_bits<4>(x, n, seed, encoded);
  encode_bits<8>(x, n, seed, encoded);
}

GRADWIRE_VECTORIZED
void from_codes(int bits, const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  if (bits == 2) return decode_bits<2>(encoded, n, y);
  if (bits == 4) return decode_bits<4>(encoded, n, y);
  decode_bits<8>(encoded, n, y);
}

class Qsgd final : public BlockCodec {
 public:
  explicit Qsgd(int bits) : bits_(bits) {}
  std::string name() const override { return "qsgd"; }
  bool wants_feedback() const override { return false; }

 private:
  std::size_t block_size() const override { return 512; }
  std::size_t block_bytes(std::size_t n) const override {
    return kHeader + packed_bytes(n, static_cast<std::size_t>(8 / bits_));
  }
  void encode_block(const float* x, std::size_t n, std::uint64_t seed,
                    std::byte* out) const override {
    to_codes(bits_, x, n, seed, out);
  }
  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t, float* y) const override {
    from_codes(bits_, in, n, y);
    return true;
  }

  int bits_;
};

}  // namespace

std::unique_ptr<Codec> qsgd_codec(int bits) {
  return std::make_unique<Qsgd>(bits);
}

}  // namespace gradwire::codec
