#include "gradwire/codec/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(std::string_view text) {
  const auto spec = codec::parse_codec(text);
  if (spec) return "accepted";
  EXPECT_EQ(spec.error().kind, ErrorKind::invalid_argument);
  return spec.error().message;
}

TEST(Catalogue, MakesEveryCodecUnderItsName) {
  for (const codec::CodecEntry& entry : codec::codec_catalogue()) {
    const auto codec = codec::make_codec(entry.name);
    EXPECT_EQ(codec.has_value(), entry.kind == codec::CodecKind::codec) << entry.name;
    if (codec) {
      EXPECT_EQ((*codec)->name(), entry.name);
    }
    if (!codec) {
      EXPECT_EQ(codec.error().kind, ErrorKind::invalid_argument);
    }
    EXPECT_FALSE(entry.summary.empty());
  }
}

TEST(Catalogue, ReadsParameters) {
  EXPECT_EQ(value_or_throw(codec::parse_codec("top_k:0.25")).parameter, 0.25);
  EXPECT_EQ(value_or_throw(codec::parse_codec("top_k")).parameter, 0.01);
  EXPECT_EQ(value_or_throw(codec::parse_codec("rotation:1")).text(), "rotation:1");
  EXPECT_EQ(value_or_throw(codec::parse_codec("int8")).text(), "int8");
  EXPECT_EQ(value_or_throw(codec::parse_codec("power_sgd:4")).kind(), codec::CodecKind::low_rank);
  EXPECT_EQ(value_or_throw(codec::parse_codec("none")).kind(), codec::CodecKind::none);
}

TEST(Catalogue, ParametersDecideTheSize) {
  const auto bytes = [](std::string_view text) {
    return value_or_throw(codec::make_codec(text))->encoded_bytes(1 << 20);
  };
  EXPECT_EQ(bytes("bf16"), 2u << 20);
  EXPECT_LT(bytes("rotation:1"), bytes("rotation:2"));
  EXPECT_LT(bytes("qsgd:2"), bytes("qsgd:8"));
  EXPECT_LT(bytes("top_k:0.001"), bytes("top_k:0.01"));
  EXPECT_LT(bytes("random_mask:0.01"), bytes("random_mask:0.1"));
  EXPECT_LT(25 * bytes("one_bit"), 4u << 20);
}

TEST(Catalogue, AnUnknownNameListsTheKnownOnesWithALineOnEach) {
  const std::string message = refusal("int6");
  EXPECT_THAT(message, HasSubstr("unknown codec \"int6\" (did you mean \"int8\"?); known:\n"));
  for (const codec::CodecEntry& entry : codec::codec_catalogue()) {
    EXPECT_THAT(message, AllOf(HasSubstr("\n  " + std::string(entry.name)),
                               HasSubstr(std::string(entry.summary))));
  }
  EXPECT_THAT(refusal("gzip"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal(""), HasSubstr("known:"));
  EXPECT_THAT(refusal("Top_k:0.1"), HasSubstr("did you mean \"top_k\""));
}

TEST(Catalogue, AutoMayNameACodec) {
  for (const char* text : {"auto", "auto:int4", "auto:power_sgd:2", "top_k:0.1", "none"})
    EXPECT_TRUE(codec::check_codec(text)) << text;
  for (const char* text : {"auto:auto", "auto:", "auto:int9", "int9", "auto:top_k:2"})
    EXPECT_FALSE(codec::check_codec(text)) << text;
  EXPECT_THAT(codec::check_codec("auto:auto").error().message, HasSubstr("auto:int8"));
}

TEST(Catalogue, RefusesParametersThatMakeNoSense) {
  for (const char* text :
       {"top_k:0", "top_k:-0.1", "top_k:0.6", "top_k:", "top_k:x", "top_k:1%", "top_k:nan",
        "top_k:inf", "random_mask:2", "qsgd:3", "qsgd:16", "rotation:0", "rotation:1.5",
        "rotation:5", "power_sgd:0", "power_sgd:1.5"}) {
    EXPECT_THAT(refusal(text), HasSubstr(" is ")) << text;
  }
  EXPECT_EQ(refusal("qsgd:3"), "codec \"qsgd:3\": the BITS of qsgd is 2, 4 or 8, as in \"qsgd:4\"");
  EXPECT_EQ(refusal("int8:4"), "codec \"int8:4\": int8 takes no parameter; write \"int8\"");
}

}  // namespace
}  // namespace gradwire::test
