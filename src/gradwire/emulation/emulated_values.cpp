#include "gradwire/emulation/emulated_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gradwire/base/random.h"

namespace gradwire::emulation {
namespace {

constexpr std::size_t kFloatsPerLine = 16;

/// Box and Muller, "A note on the generation of random normal deviates", 1958.
float normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.unit()));
}

}  // namespace

DrawnGradients::DrawnGradients(std::uint64_t seed) : drawn_((1 << 14) + 1) {
  Random random(seed);
  std::ranges::generate(drawn_, [&] { return 1e-3f * normal(random); });
}

void DrawnGradients::fill(std::vector<float>& values) {
  for (float& value : values) {
    value = drawn_[next_];
    if (++next_ == drawn_.size()) next_ = 0;
  }
}

float read_all(std::span<const float> values) {
  float sum = 0;
  for (std::size_t i = 0; i < values.size(); i += kFloatsPerLine) sum += values[i];
  return sum;
}

float marker_of(std::int64_t steps) {
  return static_cast<float>(steps % (1 << 24));
}

void mark(std::span<float> part, float marker) {
  if (!part.empty()) part.front() = part.back() = marker;
}

}  // namespace gradwire::emulation
