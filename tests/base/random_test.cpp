#include "gradwire/base/random.h"

#include <bit>
#include <set>

#include <gtest/gtest.h>

namespace gradwire::test {
namespace {

/// Sums of parts, and parts in another order, are other seeds.
TEST(MixedSeed, DiffersForAllSmallParts) {
  std::set<std::uint64_t> seeds;
  std::size_t count = 0;
  for (std::uint64_t a = 0; a < 20; ++a) {
    seeds.insert(mixed_seed({a}));
    ++count;
    for (std::uint64_t b = 0; b < 20; ++b) {
      seeds.insert(mixed_seed({a, b}));
      ++count;
      for (std::uint64_t c = 0; c < 20; ++c) {
        seeds.insert(mixed_seed({a, b, c}));
        ++count;
      }
    }
  }
  EXPECT_EQ(seeds.size(), count);
}

/// About half of the bits, in every part.
TEST(MixedSeed, ChangesManyBitsWithOne) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    EXPECT_GE(std::popcount(mixed_seed({7, 9}) ^ mixed_seed({7 ^ one, 9})), 10) << bit;
    EXPECT_GE(std::popcount(mixed_seed({7, 9}) ^ mixed_seed({7, 9 ^ one})), 10) << bit;
  }
}

}  // namespace
}  // namespace gradwire::test
