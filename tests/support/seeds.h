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

/// Consecutive seeds of a test.
struct SeedRange {
  std::uint64_t first = 1, count = 0;
};

/// Returns the seeds that one of `shards` runs today: `usual` ones, or `many` in `make test-long`;
/// GRADWIRE_SIMULATIONS is another number, GRADWIRE_SEED the only seed.
inline SeedRange seeds_of_shard(int shard, int shards, std::uint64_t usual, std::uint64_t many) {
  constexpr std::uint64_t kMaxPerShard = 1'000'000;
  const std::uint64_t only = from_environment("GRADWIRE_SEED", 0);
  if (only != 0) return {.first = only, .count = 1};
  const bool is_long = from_environment("GRADWIRE_LONG", 0) != 0;
  const std::uint64_t place =
      today() * static_cast<std::uint64_t>(shards) + static_cast<std::uint64_t>(shard);
  return {.first = place * kMaxPerShard + 1,
          .count = from_environment("GRADWIRE_SIMULATIONS", is_long ? many : usual)};
}

}  // namespace gradwire::test
