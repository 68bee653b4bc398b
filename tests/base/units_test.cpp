#include "gradwire/base/units.h"

#include <array>
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ParseBytes, CountsPowersOfTwo) {
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_EQ(parse_bytes("4").value(), 4u);
  EXPECT_EQ(parse_bytes("64K").value(), 65536u);
  EXPECT_EQ(parse_bytes("64k").value(), 65536u);
  EXPECT_EQ(parse_bytes("1M").value(), 1048576u);
  EXPECT_EQ(parse_bytes("1.5MiB").value(), 1572864u);
  EXPECT_EQ(parse_bytes("2 GB").value(), 2147483648u);
  EXPECT_EQ(parse_bytes("100000000").value(), 100000000u);
}

TEST(ParseBytes, RefusesWhatIsNotBytes) {
  for (const char* text : {"", "K", "-1", "1.5", "1e6", "4X", "4KK", "inf", "nan", "9999999999G",
                           "0x10", " 4", "4  K", "4us"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
  EXPECT_THAT(parse_bytes("4X").error().message, testing::HasSubstr("64K"));
  EXPECT_EQ(parse_bytes("4X").error().kind, ErrorKind::invalid_argument);
}

TEST(ParseDuration, ReadsUnits) {
  EXPECT_EQ(parse_duration("50us").value(), microseconds(50));
  EXPECT_EQ(parse_duration("1.5ms").value(), microseconds(1500));
  EXPECT_EQ(parse_duration("2 s").value(), seconds(2));
  EXPECT_EQ(parse_duration("100ns").value(), Duration(100));
  EXPECT_EQ(parse_duration("1min").value(), seconds(60));
  EXPECT_EQ(parse_duration("0").value(), Duration::zero());
}

TEST(ParseDuration, RefusesWhatIsNotOne) {
  for (const char* text : {"", "5", "-5us", "us", "5 hours", "9999999999999s"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
  EXPECT_THAT(parse_duration("5").error().message, testing::HasSubstr("50us"));
}

TEST(ParseRate, TellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_rate("10Gb/s").value(), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("10Gbps").value(), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("100 Mbps").value(), 1.25e7);
  EXPECT_DOUBLE_EQ(parse_rate("2.5Gbit").value(), 3.125e8);
  EXPECT_DOUBLE_EQ(parse_rate("100Mb/s").value(), 1.25e7);
  EXPECT_DOUBLE_EQ(parse_rate("1.25GB/s").value(), 1.25e9);
  for (const char* text : {"10", "0Gb/s", "-1Gb/s", "fast", "10G"}) {
    EXPECT_FALSE(parse_rate(text)) << text;
  }
}

TEST(Format, IsReadable) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(4), "4 B");
  EXPECT_EQ(format_bytes(65536), "64 KiB");
  EXPECT_EQ(format_bytes(100000000), "95.37 MiB");
  EXPECT_EQ(format_duration(Duration::zero()), "0 ns");
  EXPECT_EQ(format_duration(microseconds(50)), "50 us");
  EXPECT_EQ(format_duration(microseconds(1250)), "1.25 ms");
  EXPECT_EQ(format_duration(milliseconds(2000)), "2 s");
  EXPECT_EQ(format_rate(1.25e9), "10 Gb/s");
}

TEST(Format, IsReadBack) {
  for (std::size_t bytes : {4u, 65536u, 1048576u}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)).value(), bytes);
  }
  for (Duration duration : {Duration(1), Duration(microseconds(50)), Duration(seconds(3))}) {
    EXPECT_EQ(parse_duration(format_duration(duration)).value(), duration);
  }
  EXPECT_DOUBLE_EQ(parse_rate(format_rate(1.25e8)).value(), 1.25e8);
}

}  // namespace
}  // namespace gradwire
