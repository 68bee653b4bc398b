#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradwire {

/// Precision of matrix products and convolutions. Parameters, their gradients and the optimizer
/// stay float32.
enum class Precision : std::uint8_t { fp32, bf16, fp16 };

inline constexpr std::array<std::string_view, 3> kPrecisionNames{"fp32", "bf16", "fp16"};

inline std::string_view name_of(Precision precision) {
  return kPrecisionNames[static_cast<std::size_t>(precision)];
}

}  // namespace gradwire
