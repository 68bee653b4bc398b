#include "gradwire/net/payload_checksum.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"

namespace gradwire::net {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, Random& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

/// Hosts with different processors and libraries must compute the same checksum.
TEST(PayloadChecksum, KnownValues) {
  EXPECT_EQ(payload_checksum({}), 0x38D394C2u);  // XXH3-64 of nothing: 2D06800538D394C2.
  const std::string_view text = "123456789";
  EXPECT_EQ(payload_checksum(std::as_bytes(std::span(text))), 0x67A17DFFu);
  EXPECT_EQ(payload_checksum(std::vector<std::byte>(100'000)), 0x4B7DF4D2u);
}

TEST(PayloadChecksum, PiecesAgreeWithTheWholeAtEveryLengthAndCut) {
  Random random(1);
  const std::vector<std::byte> data = random_bytes(20'000, random);
  PayloadChecksum checksum;  // One object for all, as for the frames of a stream.
  for (int i = 0; i < 300; ++i) {
    const std::size_t size = random.below(i % 10 == 0 ? data.size() : 600);
    ConstBytes rest = ConstBytes(data).subspan(random.below(data.size() - size), size);
    const std::uint32_t whole = payload_checksum(rest);
    checksum.begin(size);
    while (!rest.empty()) {
      const std::size_t cut = std::min<std::size_t>(rest.size(), random.below(size + 1));
      checksum.add(rest.first(cut));
      rest = rest.subspan(cut);
    }
    ASSERT_EQ(checksum.value(), whole) << size;
  }
}

TEST(PayloadChecksum, SeesEveryFlippedBit) {
  Random random(2);
  for (const std::size_t size : {1u, 4u, 17u, 200u, 1000u}) {
    std::vector<std::byte> data = random_bytes(size, random);
    const std::uint32_t before = payload_checksum(data);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const auto mask = static_cast<std::byte>(1u << (bit % 8));
      data[bit / 8] ^= mask;
      ASSERT_NE(payload_checksum(data), before) << bit << " of " << size;
      data[bit / 8] ^= mask;
    }
  }
}

}  // namespace
}  // namespace gradwire::net
