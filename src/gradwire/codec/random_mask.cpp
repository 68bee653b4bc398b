// random_mask: a random subset of the values, the same on all ranks, so that masked values can be
// reduced directly (Konecny et al., "Federated learning: strategies for improving communication
// efficiency", 2016, 3.1; rand-k with memory: Stich, Cordonnier, Jaggi, "Sparsified SGD with
// memory", NeurIPS 2018). A block is cut into runs of equal length, to within one, as many as it
// keeps values. The seed picks one value of each run, so each value is kept with a probability of
// about FRACTION. All other values become the residual. Block format: the kept values as bf16, in
// order; no indexes, as both ends know the seed.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/codecs.h"
#include "gradwire/codec/float16.h"
#include "gradwire/codec/noise.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kBlock = 4096;

using Picks = std::array<std::uint32_t, kBlock>;

/// Cuts n values into `kept` runs; picks[r] is the index of the value picked of run r.
GRADWIRE_VECTORIZED
void pick(std::uint64_t seed, std::size_t n, std::size_t kept, std::uint32_t* __restrict picks) {
  // Run r begins at r * length, in units of 2^-19 values: kBlock values are below 2^32 units.
  const std::uint32_t key = noise_key(seed, 0);
  const auto length = static_cast<std::uint32_t>(((n << 19) + kept - 1) / kept);
  for (std::uint32_t r = 0; r < kept; ++r) {
    const std::uint32_t begin = (r * length) >> 19;
    const std::uint32_t size = (((r + 1) * length) >> 19) - begin;
    picks[r] = begin + (((scattered(key + r) >> 16) * size) >> 16);
  }
}

GRADWIRE_VECTORIZED
void to_codes(const float* __restrict x, std::size_t n, std::size_t kept,
              const std::uint32_t* __restrict picks, std::byte* __restrict encoded) {
  // Values that are not finite must be decoded as such, even if they are not kept.
  const bool finite = max_magnitude(x, n) < kInfinity;
  auto* const codes = reinterpret_cast<PackedUint16*>(encoded);
  for (std::size_t r = 0; r < kept; ++r) codes[r].value = to_bf16(finite ? x[picks[r]] : kNan);
}

/// If a block has a value that is not finite, all its kept values are NaN.
bool is_nan(const std::byte* block) {
  return std::isnan(load_bf16(block));
}

class RandomMask final : public BlockCodec {
 public:
  explicit RandomMask(double fraction) : fraction_(fraction) {}
  std::string name() const override { return "random_mask"; }
  bool wants_feedback() const override { return true; }

 private:
  std::size_t kept(std::size_t n) const {
    const auto share = static_cast<std::size_t>(std::lround(fraction_ * static_cast<double>(n)));
    return std::clamp<std::size_t>(share, 1, n);
  }

  std::size_t block_size() const override { return kBlock; }
  std::size_t block_bytes(std::size_t n) const override { return 2 * kept(n); }

  void encode_block(const float* x, std::size_t n, std::uint64_t seed,
                    std::byte* out) const override {
    alignas(64) Picks picks;
    pick(seed, n, kept(n), picks.data());
    to_codes(x, n, kept(n), picks.data(), out);
  }

  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t seed,
                    float* y) const override {
    std::fill_n(y, n, is_nan(in) ? kNan : 0.0F);
    for_each_kept(in, n, seed, [y](std::size_t i, float value) { y[i] = value; });
    return true;
  }

  bool add_block(const std::byte* in, std::size_t n, std::uint64_t seed, float* y) const override {
    if (is_nan(in)) std::fill_n(y, n, kNan);
    for_each_kept(in, n, seed, [y](std::size_t i, float value) { y[i] += value; });
    return true;
  }

  void subtract_block(const std::byte* in, std::size_t n, std::uint64_t seed,
                      float* x) const override {
    if (is_nan(in)) return void(std::fill_n(x, n, 0.0F));
    for_each_kept(in, n, seed, [x](std::size_t i, float value) { x[i] -= value; });
  }

  template <class Visit>
  void for_each_kept(const std::byte* in, std::size_t n, std::uint64_t seed, Visit visit) const {
    const auto* const codes = reinterpret_cast<const PackedUint16*>(in);
    const std::size_t count = kept(n);
    alignas(64) Picks picks;
    pick(seed, n, count, picks.data());
    for (std::size_t r = 0; r < count; ++r) visit(picks[r], from_bf16(codes[r].value));
  }

  double fraction_;
};

}  // namespace

std::unique_ptr<Codec> random_mask_codec(double fraction) {
  return std::make_unique<RandomMask>(fraction);
}

}  // namespace gradwire::codec
