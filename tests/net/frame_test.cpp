#include "gradwire/net/frame.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/random.h"

namespace gradwire::net {
namespace {

using Wire = std::array<std::byte, kFrameHeaderBytes>;

FrameHeader example() {
  return {.type = FrameType::data,
          .length = 70'000,
          .channel = 0x80000003,
          .message = 12,
          .sequence = 0x923456789ABC,
          .group = 0xFEDC,
          .offset = 1ull << 40,
          .number = 0xFEDCBA9876543210,
          .payload_checksum = 0xDEADBEEF};
}

/// Recomputes the header's checksum after a deliberate change.
void seal(Wire& wire) {
  store_little_endian(wire.data() + 44, crc32c(ConstBytes(wire).first(44)));
}

TEST(Frame, ComesBackAsItWas) {
  Wire wire;
  encode(example(), wire);
  const Result<FrameHeader> back = decode(wire);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->type, FrameType::data);
  EXPECT_EQ(back->length, 70'000u);
  EXPECT_EQ(back->channel, 0x80000003u);
  EXPECT_EQ(back->message, 12u);
  EXPECT_EQ(back->sequence, 0x923456789ABCu);
  EXPECT_EQ(back->group, 0xFEDCu);
  EXPECT_EQ(back->offset, 1ull << 40);
  EXPECT_EQ(back->number, 0xFEDCBA9876543210u);
  EXPECT_EQ(back->payload_checksum, 0xDEADBEEFu);
}

TEST(Frame, ANewNumberChangesNothingElse) {
  Wire wire;
  encode(example(), wire);
  set_number(wire, 3);
  const Result<FrameHeader> back = decode(wire);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->number, 3u);
  Wire same;
  FrameHeader header = example();
  header.number = 3;
  encode(header, same);
  EXPECT_EQ(wire, same);
}

TEST(Frame, EveryFlippedBitIsNoticed) {
  Wire wire;
  encode(example(), wire);
  for (std::size_t bit = 0; bit < wire.size() * 8; ++bit) {
    Wire changed = wire;
    changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(decode(changed)) << "bit " << bit;
  }
}

TEST(Frame, AnotherVersionIsNamed) {
  Wire wire;
  encode(example(), wire);
  wire[2] = std::byte{9};
  seal(wire);
  const auto result = decode(wire);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(result.error().message, testing::HasSubstr("version 9"));
}

TEST(Frame, LengthsAreLimitedByType) {
  Wire wire;
  FrameHeader header = example();
  header.length = kMaxDataPayload + 1;
  encode(header, wire);
  EXPECT_FALSE(decode(wire));
  header.type = FrameType::abort;
  header.length = kMaxControlPayload + 1;
  encode(header, wire);
  EXPECT_FALSE(decode(wire));
  wire[3] = std::byte{77};
  seal(wire);
  EXPECT_FALSE(decode(wire));
}

TEST(Frame, RandomBytesAreRefused) {
  Random random(3);
  for (int i = 0; i < 100'000; ++i) {
    Wire wire;
    for (std::byte& b : wire) b = static_cast<std::byte>(random.next());
    ASSERT_FALSE(decode(wire));
  }
}

}  // namespace
}  // namespace gradwire::net
