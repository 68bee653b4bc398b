#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradwire {

/// What communication may hide behind.
enum class Overlap : std::uint8_t {
  none,      ///< Nothing: gradients leave when backward is over, and are waited for.
  backward,  ///< Backward: buckets leave as they fill, and are waited for when it is over.
  full,      ///< The next forward too: each layer waits for its own parameters alone.
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

}  // namespace gradwire
