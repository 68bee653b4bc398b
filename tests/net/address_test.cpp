#include "gradwire/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::net {
namespace {

using testing::HasSubstr;

TEST(SocketAddress, WritesWhatItParses) {
  for (const char* text : {"10.0.0.1:29500", "[::1]:29500", "[fd00::2]:1", "127.0.0.1:0"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address) << address.error().message;
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(SocketAddress, RefusesInvalidAddresses) {
  for (const char* text : {"", ":", ":80", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:65536",
                           "::1:80", "host:80", "[::1]", "10.0.0.1:-1", "[]:1", "10.0.0.1:80 "}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().kind, ErrorKind::invalid_argument);
  }
  EXPECT_FALSE(SocketAddress::parse(std::string_view("10.0.0.1\0.evil:80", 16)));
}

TEST(SocketAddress, KnowsItsKind) {
  EXPECT_TRUE(SocketAddress::of("127.1.2.3", 1)->is_loopback());
  EXPECT_TRUE(SocketAddress::of("::1", 1)->is_loopback());
  EXPECT_FALSE(SocketAddress::of("10.0.0.1", 1)->is_loopback());
  EXPECT_TRUE(SocketAddress::of("0.0.0.0", 1)->is_any());
  EXPECT_TRUE(SocketAddress::of("::", 1)->is_any());
  EXPECT_FALSE(SocketAddress().valid());
}

TEST(SocketAddress, PortIsAPartOfTheValue) {
  const SocketAddress address = *SocketAddress::of("fd00::2", 5);
  EXPECT_EQ(address.with_port(9).to_string(), "[fd00::2]:9");
  EXPECT_NE(address, address.with_port(9));
  EXPECT_EQ(address, address.with_port(9).with_port(5));
}

TEST(Resolve, FindsNamesAndNumbers) {
  const auto numeric = resolve("10.1.2.3", 7);
  ASSERT_TRUE(numeric);
  EXPECT_EQ(numeric->at(0).to_string(), "10.1.2.3:7");
  const auto local = resolve("localhost", 7);
  ASSERT_TRUE(local) << local.error().message;
  EXPECT_TRUE(local->at(0).is_loopback());
}

TEST(Resolve, NamesAnUnknownHost) {
  const auto none = resolve("no such host!", 7);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("\"no such host!\""));
}

TEST(RouteSource, IsTheLoopbackForTheLoopback) {
  const auto source = route_source(*SocketAddress::of("127.0.0.1", 29500));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->to_string(), "127.0.0.1:0");
}

}  // namespace
}  // namespace gradwire::net
