#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace gradwire::test {

/// Returns a number from the environment, such as GRADWIRE_SEED; `otherwise` if it is not set.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Returns the days since 1970-01-01 (UTC), or GRADWIRE_DAY. Tests with random inputs try other
/// ones every day; a failure says the seed.
inline std::uint64_t today() {
  const auto now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  return from_environment("GRADWIRE_DAY",
                          static_cast<std::uint64_t>(now.time_since_epoch().count()));
}

/// Returns `usual`, or `many` in `make test-long`.
inline std::uint64_t usual_or(std::uint64_t usual, std::uint64_t many) {
  return from_environment("GRADWIRE_LONG", 0) != 0 ? many : usual;
}

}  // namespace gradwire::test
