#include "tests/codec/values.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "gradwire/base/random.h"

namespace gradwire::test {
namespace {

double gaussian(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

double sign(Random& random) {
  return random.one_in(2) ? 1 : -1;
}

double value_of(Kind kind, Random& random) {
  switch (kind) {
    case Kind::zeros:
    case Kind::one_hot:
      return 0;
    case Kind::constant:
      return -0.3;
    case Kind::heavy:  // Magnitudes over many orders.
      return sign(random) * std::exp(3 * gaussian(random) - 5);
    case Kind::denormal:
      return sign(random) * random.unit() * 1e-39;
    case Kind::huge:
      return sign(random) * (0.5 + 0.5 * random.unit()) * std::numeric_limits<float>::max();
    case Kind::gaussian:
    case Kind::nan:
    case Kind::infinity:
      break;
  }
  return gaussian(random);
}

}  // namespace

std::vector<std::string> codec_specs() {
  return {"bf16",
          "fp16",
          "int8",
          "int4",
          "qsgd:2",
          "qsgd:4",
          "qsgd:8",
          "rotation:1",
          "rotation:2",
          "rotation:3",
          "rotation:4",
          "two_bit",
          "ternary",
          "one_bit",
          "top_k:0.01",
          "top_k:0.1",
          "top_k:0.4",
          "top_k:0.001",
          "random_mask:0.1",
          "random_mask:0.003",
          "random_mask:0.5"};
}

std::vector<std::size_t> value_counts() {
  return {0, 1, 2, 3, 7, 8, 31, 255, 256, 257, 1000, 4096 + 3, 100003};
}

std::vector<Kind> value_kinds() {
  return {Kind::gaussian, Kind::heavy,   Kind::zeros, Kind::denormal, Kind::huge,
          Kind::constant, Kind::one_hot, Kind::nan,   Kind::infinity};
}

std::string name_of(Kind kind) {
  const std::vector<std::string> names{"gaussian", "heavy",   "zeros", "denormal", "huge",
                                       "constant", "one hot", "nan",   "infinity"};
  return names[static_cast<std::size_t>(kind)];
}

bool has_only_finite(Kind kind) {
  return kind != Kind::nan && kind != Kind::infinity;
}

std::vector<float> make_values(Kind kind, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(value_of(kind, random));
  if (count == 0) return values;
  float& one = values[random.below(count)];
  if (kind == Kind::one_hot) one = 4.5F;
  if (kind == Kind::nan) one = std::numeric_limits<float>::quiet_NaN();
  if (kind == Kind::infinity) one = -std::numeric_limits<float>::infinity();
  return values;
}

double square(const std::vector<float>& x) {
  double sum = 0;
  for (float value : x) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace gradwire::test
