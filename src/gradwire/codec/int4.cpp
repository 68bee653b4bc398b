// int4: as int8, in four bits (formula: Dettmers et al., "8-bit optimizers via block-wise
// quantization", ICLR 2022, 2.1, with 15 levels). With m the maximum magnitude of a block, x is
// encoded as round(7 x / m) and decoded as that times m / 7. The error is at most m / 14. Blocks
// are smaller than int8's, as fewer values have a smaller maximum: about 2.8 standard deviations
// for 256 Gaussian values, 3.2 for 1024. Block format: m / 7 as float32, then half a byte per
// value.

#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/block_math.h"
#include "gradwire/codec/codecs.h"
#include "gradwire/codec/packing.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kHeader = sizeof(float);

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  const Grid grid = grid_of(max_magnitude(x, n), 7);
  store_float(encoded, grid.step);
  const auto code = [&](std::size_t i) { return (rounded(x[i] * grid.inverse) + 8u) & 15u; };
  pack<4>(n, code, encoded + kHeader);
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const float step = load_float(encoded);
  const auto value = [&](std::uint32_t code) {
    return static_cast<float>(static_cast<std::int32_t>(code) - 8) * step;
  };
  unpack<4>(encoded + kHeader, n, value, y);
}

}  // namespace

std::unique_ptr<Codec> int4_codec() {
  return block_codec({.name = "int4",
                      .block_size = 256,
                      .header_bytes = kHeader,
                      .bits = 4,
                      .wants_feedback = true,
                      .encode = to_codes,
                      .decode = from_codes});
}

}  // namespace gradwire::codec
