// int8: block-wise quantization to integers (Dettmers, "8-bit approximations for parallelism in
// deep learning", ICLR 2016; blocks: Dettmers et al., "8-bit optimizers via block-wise
// quantization", ICLR 2022, 2.1). With m the maximum magnitude of a block, x is encoded as
// round(127 x / m) and decoded as that times m / 127. The error is at most m / 254. Block format: m
// / 127 as float32, then a byte per value.

#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/block_math.h"
#include "gradwire/codec/codecs.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kHeader = sizeof(float);

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  const Grid grid = grid_of(max_magnitude(x, n), 127);
  store_float(encoded, grid.step);
  std::byte* const codes = encoded + kHeader;
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<std::byte>(rounded(x[i] * grid.inverse));
  }
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const float step = load_float(encoded);
  const auto* const codes = reinterpret_cast<const std::int8_t*>(encoded + kHeader);
  for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<float>(codes[i]) * step;
}

}  // namespace

std::unique_ptr<Codec> int8_codec() {
  return block_codec({.name = "int8",
                      .block_size = 1024,
                      .header_bytes = kHeader,
                      .bits = 8,
                      .wants_feedback = true,
                      .encode = to_codes,
                      .decode = from_codes});
}

}  // namespace gradwire::codec
