#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace gradwire {

/// A seeded random number generator that gives the same numbers on every platform (splitmix64;
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). It has eight
/// bytes of state, so that each of a hundred thousand simulations can have its own. Not for
/// secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// Uniform in 0 .. bound - 1; bound must be positive. Its bias below 2^-32 is negligible here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  /// Uniform in low .. high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }

  /// Returns true once in `n` draws, on average.
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

/// Returns a seed made of all parts, such as a run's seed, a step and a rank. Each part is mixed in
/// by one draw: seeds whose parts differ, by 1 or in order, have unrelated random numbers.
inline std::uint64_t mixed_seed(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t seed = 0;
  for (const std::uint64_t part : parts) seed = Random(seed ^ part).next();
  return seed;
}

/// Returns `bytes` random bytes as 2 * bytes hexadecimal digits, from the operating system's
/// generator: fit for secrets. Throws Exception(system) if that fails.
std::string random_hex(std::size_t bytes);

}  // namespace gradwire
