#include "gradwire/bootstrap/mesh/local_rails.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::bootstrap {
namespace {

using testing::HasSubstr;

net::SocketAddress at(const std::string& host, std::uint16_t port = 0) {
  return *net::SocketAddress::of(host, port);
}

TEST(LocalRails, FollowTheRouteToTheMasterUnlessChosen) {
  for (const char* wanted : {"", "lo"}) {
    const auto rails = choose_local_rails(wanted, at("127.0.0.1", 29500));
    ASSERT_TRUE(rails) << rails.error().message;
    ASSERT_EQ(rails->size(), 1u);
    EXPECT_EQ(rails->front(), (RailEndpoint{at("127.0.0.1"), "lo"}));
  }
}

TEST(LocalRails, AnUnknownNameListsTheKnownOnes) {
  const auto rails = choose_local_rails("lo,nosuch", at("127.0.0.1"));
  ASSERT_FALSE(rails);
  EXPECT_EQ(rails.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(rails.error().message, HasSubstr("lo (127.0.0.1"));
}

TEST(LocalRails, AddressesInPlaceOfInterfacesKeepTheirOrder) {
  const auto rails = rails_at({"127.0.0.2", "127.0.0.1"});
  ASSERT_TRUE(rails) << rails.error().message;
  const std::vector<RailEndpoint> expected{{at("127.0.0.2"), "lo"}, {at("127.0.0.1"), "lo"}};
  EXPECT_EQ(*rails, expected);
}

TEST(LocalRails, InvalidAndTooManyAddressesAreErrors) {
  const auto name = rails_at({"127.0.0.1", "lo"});
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(name.error().message, HasSubstr("\"lo\""));
  const auto many = rails_at(std::vector<std::string>(kMaxRails + 1, "127.0.0.1"));
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(many.error().message, HasSubstr("9 addresses"));
}

TEST(LocalRails, DetectsPacketsThatLeaveByAnotherInterface) {
  // Packets to the loopback address use the loopback interface, whatever their source address.
  EXPECT_TRUE(leaves_elsewhere({at("192.0.2.1"), "gw1"}, at("127.0.0.1", 1)));
  EXPECT_FALSE(leaves_elsewhere({at("127.0.0.1"), "lo"}, at("127.0.0.1", 1)));
  EXPECT_FALSE(leaves_elsewhere({at("192.0.2.1"), ""}, at("127.0.0.1", 1)));
}

TEST(LocalRails, EachInterfaceAnswersOnlyForItsIPv6Address) {
  EXPECT_TRUE(answers_for_itself_alone({at("::1"), "nosuch"}));
}

}  // namespace
}  // namespace gradwire::bootstrap
