#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradwire::step {

/// The computation behind which communication may be hidden.
enum class Overlap : std::uint8_t {
  none,      ///< Nothing: gradients are sent after backward and waited for.
  backward,  ///< Backward: buckets are sent as they fill, and waited for after it.
  full,      ///< The next forward too: each layer waits only for its own parameters.
};

inline constexpr std::array<std::string_view, 3> kOverlapNames{"none", "backward", "full"};

inline std::string_view name_of(Overlap overlap) {
  return kOverlapNames[static_cast<std::size_t>(overlap)];
}

inline std::optional<Overlap> overlap_named(std::string_view name) {
  for (const Overlap overlap : {Overlap::none, Overlap::backward, Overlap::full}) {
    if (name == name_of(overlap)) return overlap;
  }
  return std::nullopt;
}

}  // namespace gradwire::step
