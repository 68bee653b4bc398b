// bf16: the upper half of a float32, rounded to nearest, ties to even: the format of Google's TPUs
// (Wang and Kanwar, "BFloat16: the secret to high performance on Cloud TPUs", 2019). The error is
// at most half a unit of the 8 significant bits: 2^-9 of the next power of two above the value, so
// 2^-8 of the value. Finite values stay finite: instead of infinity they become the maximum bf16.

#include "gradwire/codec/bf16.h"

#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/codecs.h"

namespace gradwire {
namespace {

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::byte* __restrict encoded) {
  auto* codes = reinterpret_cast<PackedUint16*>(encoded);
  for (std::size_t i = 0; i < n; ++i) codes[i].value = to_bf16(x[i]);
}

GRADWIRE_VECTORIZED
void from_codes(const std::byte* __restrict encoded, std::size_t n, float* __restrict y) {
  const auto* codes = reinterpret_cast<const PackedUint16*>(encoded);
  for (std::size_t i = 0; i < n; ++i) y[i] = from_bf16(codes[i].value);
}

class Bf16 final : public BlockCodec {
 public:
  std::string name() const override { return "bf16"; }
  bool wants_feedback() const override { return false; }

 private:
  std::size_t block_size() const override { return 1024; }
  std::size_t block_bytes(std::size_t n) const override { return 2 * n; }
  void encode_block(const float* x, std::size_t n, std::uint64_t, std::byte* out) const override {
    to_codes(x, n, out);
  }
  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t, float* y) const override {
    from_codes(in, n, y);
    return true;
  }
};

}  // namespace

std::unique_ptr<Codec> bf16_codec() {
  return std::make_unique<Bf16>();
}

}  // namespace gradwire
