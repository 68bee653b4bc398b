#include "gradwire/base/crc32c.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"

namespace gradwire {
namespace {

ConstBytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);  // The check value of CRC catalogues.
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAu);                   // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);  // RFC 3720, B.4
}

/// Bit by bit, as in the definition.
std::uint32_t by_definition(ConstBytes bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLengthAndCut) {
  Random random(1);
  std::vector<std::byte> data(20'000);
  for (std::byte& b : data) b = static_cast<std::byte>(random.next());
  for (int i = 0; i < 300; ++i) {
    const std::size_t size = random.below(i % 10 == 0 ? data.size() : 300);
    const std::size_t begin = random.below(data.size() - size);
    const ConstBytes piece = ConstBytes(data).subspan(begin, size);
    const std::size_t cut = size == 0 ? 0 : random.below(size);
    ASSERT_EQ(crc32c(piece), by_definition(piece)) << size;
    ASSERT_EQ(crc32c(piece.subspan(cut), crc32c(piece.first(cut))), by_definition(piece)) << size;
  }
}

}  // namespace
}  // namespace gradwire
