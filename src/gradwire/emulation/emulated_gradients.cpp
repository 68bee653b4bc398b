#include "gradwire/emulation/emulated_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "gradwire/base/random.h"

namespace gradwire {
namespace {

constexpr std::size_t kFloatsPerLine = 16;

/// Box and Muller, "A note on the generation of random normal deviates", 1958.
float normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.unit()));
}

}  // namespace

EmulatedGradients::EmulatedGradients(const std::vector<BucketShape>& buckets, std::uint64_t seed) {
  // Drawn once and repeated from varying offsets: drawing 10^8 values takes seconds.
  std::array<float, (1 << 14) + 1> drawn;
  Random random(seed);
  std::ranges::generate(drawn, [&] { return 1e-3f * normal(random); });
  for (const BucketShape& bucket : buckets) {
    std::vector<float>& values = values_.emplace_back(bucket.count);
    std::size_t next = random.below(drawn.size());
    for (float& value : values) {
      value = drawn[next];
      if (++next == drawn.size()) next = 0;
    }
  }
}

LentSpan EmulatedGradients::lend(std::size_t bucket) {
  return {.data = values_[bucket].data(), .count = values_[bucket].size()};
}

float EmulatedGradients::read(std::size_t bucket) const {
  float sum = 0;
  for (std::size_t i = 0; i < values_[bucket].size(); i += kFloatsPerLine)
    sum += values_[bucket][i];
  return sum;
}

}  // namespace gradwire
