#pragma once

#include <cstdint>
#include <cstdlib>

namespace gradwire::test {

/// Returns a number from the environment, such as GRADWIRE_SEED; `otherwise` if it is not set.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace gradwire::test
