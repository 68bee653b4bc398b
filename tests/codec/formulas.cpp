#include "tests/codec/formulas.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gradwire::test {
namespace {

/// Sums and quotients of float32 are not exact.
constexpr double kRounding = 1 + 1e-4;

/// Half of the smallest positive float32; some codecs have a limit of their own.
constexpr double kSmallest = 1e-45;

double block_maximum(std::span<const float> block) {
  double max = 0;
  for (float x : block) max = std::max(max, std::abs(static_cast<double>(x)));
  return max;
}

double square_of(std::span<const float> block) {
  double sum = 0;
  for (float x : block) sum += static_cast<double>(x) * x;
  return sum;
}

/// Multiples of maximum / levels, or of 10^-36 if that is more.
double step_of(std::span<const float> block, double levels) {
  return std::max(block_maximum(block) / levels, 1e-36) * kRounding;
}

/// All but the part that the mean magnitude explains.
double one_bit_square(std::span<const float> block) {
  double sum = 0;
  for (float x : block) sum += std::abs(static_cast<double>(x));
  return square_of(block) - sum * sum / static_cast<double>(block.size());
}

/// The error for Gaussian values; a few values are not Gaussian even when rotated.
double rotation_square(int bits, std::span<const float> block) {
  const double lost[] = {0, 0.571, 0.1349, 0.0390, 0.0117};
  const double few[] = {0, 1.01, 0.6, 0.3, 0.2};
  return square_of(block) * (block.size() >= 255 ? 2 * lost[bits] : few[bits]);
}

std::string name_of(const std::string& spec) {
  return spec.substr(0, spec.find(':'));
}

int bits_of_spec(const std::string& spec) {
  return spec.back() - '0';
}

}  // namespace

std::size_t block_size_of(const std::string& spec) {
  const std::map<std::string, std::size_t> sizes{
      {"int4", 256},     {"one_bit", 256}, {"two_bit", 512},     {"qsgd", 512},
      {"ternary", 1280}, {"top_k", 4096},  {"random_mask", 4096}};
  const auto found = sizes.find(name_of(spec));
  return found == sizes.end() ? 1024 : found->second;
}

std::optional<double> allowed_error(const std::string& spec, std::span<const float> block,
                                    float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const std::string name = name_of(spec);
  if (name == "bf16") return std::max(magnitude * 0x1p-8, 0x1p-134);
  if (name == "fp16") return magnitude * 0x1p-11 + block_maximum(block) * 0x1p-39 + kSmallest;
  if (name == "int8") return step_of(block, 127) / 2;
  if (name == "int4") return step_of(block, 7) / 2;
  if (name == "ternary") return step_of(block, 1);
  if (spec == "qsgd:2") return step_of(block, 1);
  if (spec == "qsgd:4") return step_of(block, 7);
  if (spec == "qsgd:8") return step_of(block, 127);
  if (name == "top_k" || name == "random_mask") return magnitude;
  return std::nullopt;
}

std::optional<double> allowed_square(const std::string& spec, std::span<const float> block) {
  const double rounding = square_of(block) * 1e-5 + 1e-77;
  if (name_of(spec) == "one_bit" || name_of(spec) == "two_bit") {
    return one_bit_square(block) + rounding;
  }
  if (name_of(spec) == "rotation") return rotation_square(bits_of_spec(spec), block) + rounding;
  return std::nullopt;
}

}  // namespace gradwire::test
