#include "gradwire/codec/hadamard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_math.h"
#include "gradwire/codec/noise.h"

namespace gradwire::codec {
namespace {

/// AVX2 width: for wider vectors compilers generate code slower than scalar code.
constexpr std::size_t kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), may_alias));
typedef std::int32_t LaneBits __attribute__((vector_size(kLanes * sizeof(float))));

/// Butterfly of lanes at distance kDistance: a + b in the lower lane, a - b in the upper one.
template <int kDistance>
GRADWIRE_INLINE void butterfly(Lanes& v) {
  LaneBits partner, sign;
#pragma GCC unroll 8
  for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
    partner[lane] = lane ^ kDistance;
    sign[lane] = (lane & kDistance) != 0 ? INT32_MIN : 0;
  }
  const auto other = reinterpret_cast<Lanes>(reinterpret_cast<LaneBits>(v) ^ sign);
  v = __builtin_shuffle(v, partner) + other;
}

/// Butterflies at distances 1, 2, 4 and 8.
GRADWIRE_INLINE void first_stages(float* x, std::size_t n) {
  auto* const lanes = reinterpret_cast<Lanes*>(x);
  for (std::size_t i = 0; i < n / kLanes; i += 2) {
    Lanes a = lanes[i];
    Lanes b = lanes[i + 1];
    butterfly<1>(a);
    butterfly<1>(b);
    butterfly<2>(a);
    butterfly<2>(b);
    butterfly<4>(a);
    butterfly<4>(b);
    lanes[i] = a + b;
    lanes[i + 1] = a - b;
  }
}

/// Butterflies at distances d and 2 d in one pass, which halves the cache traffic.
GRADWIRE_INLINE void two_stages(float* x, std::size_t n, std::size_t d) {
  for (std::size_t begin = 0; begin < n; begin += 4 * d) {
    float* const p = x + begin;
#pragma GCC ivdep
    for (std::size_t i = 0; i < d; ++i) {
      const float a = p[i] + p[i + d];
      const float b = p[i] - p[i + d];
      const float c = p[i + 2 * d] + p[i + 3 * d];
      const float e = p[i + 2 * d] - p[i + 3 * d];
      p[i] = a + c;
      p[i + d] = b + e;
      p[i + 2 * d] = a - c;
      p[i + 3 * d] = b - e;
    }
  }
}

GRADWIRE_INLINE void one_stage(float* x, std::size_t n, std::size_t d) {
  for (std::size_t begin = 0; begin < n; begin += 2 * d) {
    float* const p = x + begin;
#pragma GCC ivdep
    for (std::size_t i = 0; i < d; ++i) {
      const float a = p[i];
      const float b = p[i + d];
      p[i] = a + b;
      p[i + d] = a - b;
    }
  }
}

}  // namespace

GRADWIRE_VECTORIZED
void hadamard_transform(float* x, std::size_t n) {
  first_stages(x, n);
  std::size_t d = 2 * kLanes;
  for (; 4 * d <= n; d *= 4) two_stages(x, n, d);
  if (2 * d <= n) one_stage(x, n, d);
}

GRADWIRE_VECTORIZED
void scale_and_flip(const float* __restrict x, std::size_t n, float factor, std::uint64_t seed,
                    float* __restrict y) {
  // Bit r of word j is the sign of value 32 r + j.
  constexpr std::size_t kWords = kMaxTransform / 32;
  constexpr auto kLargest = static_cast<std::int32_t>(kInfinity - 1);
  std::array<std::uint32_t, kWords> words;
  const std::uint32_t key = noise_key(seed, 0);
  for (std::uint32_t j = 0; j < kWords; ++j) words[j] = scattered(key + j);
  for (std::size_t r = 0; r * kWords < n; ++r) {
    for (std::size_t j = 0; j < kWords; ++j) {
      const std::uint32_t bits = bits_of(x[r * kWords + j] * factor);
      const auto magnitude = static_cast<std::int32_t>(bits & kMagnitude);
      const auto finite = static_cast<std::uint32_t>(magnitude < kLargest ? magnitude : kLargest);
      const std::uint32_t sign = (bits ^ (words[j] << (31 - r))) & ~kMagnitude;
      y[r * kWords + j] = std::bit_cast<float>(finite | sign);
    }
  }
}

}  // namespace gradwire::codec
