#include "gradwire/topology/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::topology {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<Interface> kHost = {
    {.name = "lo", .addresses = {"127.0.0.1", "::1"}, .up = true, .loopback = true},
    {.name = "ens803f0", .addresses = {"10.0.0.1", "fe80::1%ens803f0"}, .up = true},
    {.name = "ens803f1", .addresses = {"10.0.1.1"}, .up = true},
    {.name = "ens803", .addresses = {"10.0.2.1"}, .up = true},
    {.name = "eth0", .addresses = {"192.168.0.1"}, .up = false},
    {.name = "ib0", .addresses = {}, .up = true},
};

std::vector<std::string> chosen(std::string_view wanted) {
  const auto interfaces = choose_interfaces(wanted, kHost);
  std::vector<std::string> names;
  if (!interfaces) return {"error: " + interfaces.error().message};
  for (const Interface& one : *interfaces) names.push_back(one.name);
  return names;
}

TEST(ChooseInterfaces, TakesAName) {
  EXPECT_THAT(chosen("lo"), ElementsAre("lo"));
}

TEST(ChooseInterfaces, TakesAPrefix) {
  EXPECT_THAT(chosen("ens803f"), ElementsAre("ens803f0", "ens803f1"));
}

TEST(ChooseInterfaces, OrdersThoseOfAPrefixByTheirNumber) {
  std::vector<Interface> host;
  for (const char* name : {"gw10", "gw2", "gw1"}) {
    host.push_back({.name = name, .addresses = {"10.0.0.1"}, .up = true});
  }
  std::vector<std::string> names;
  const auto found = choose_interfaces("gw", host);
  ASSERT_TRUE(found);
  for (const Interface& one : *found) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("gw1", "gw2", "gw10"));
}

TEST(ChooseInterfaces, PrefersTheNameToThePrefix) {
  EXPECT_THAT(chosen("ens803"), ElementsAre("ens803"));
}

TEST(ChooseInterfaces, TakesAListInItsOrderEachOnce) {
  EXPECT_THAT(chosen("ens803f1, lo,,ens803f"), ElementsAre("ens803f1", "lo", "ens803f0"));
}

TEST(ChooseInterfaces, UnknownNameListsWhatThereIs) {
  EXPECT_THAT(
      chosen("wlan0"),
      ElementsAre(
          "error: network interface \"wlan0\" is not the name or prefix of any "
          "interface; this host has lo (127.0.0.1, ::1), ens803f0 (10.0.0.1, fe80::1%ens803f0), "
          "ens803f1 (10.0.1.1), ens803 (10.0.2.1), eth0 (down), ib0 (no address)"));
}

TEST(ChooseInterfaces, OneUnknownEntryOfAListIsAnError) {
  EXPECT_THAT(chosen("lo,wlan0"), ElementsAre(HasSubstr("\"wlan0\"")));
}

TEST(ChooseInterfaces, SkipsInterfacesThatAreDownOrHaveNoAddress) {
  EXPECT_THAT(chosen("eth0"), ElementsAre(HasSubstr("\"eth0\" is down or has no address")));
  EXPECT_THAT(chosen("ib"), ElementsAre(HasSubstr("is down or has no address")));
}

TEST(ChooseInterfaces, NothingWantedIsAnError) {
  EXPECT_THAT(chosen(" , "), ElementsAre(HasSubstr("error")));
}

TEST(InterfaceWithAddress, FindsIt) {
  EXPECT_EQ(interface_with_address("10.0.1.1", kHost), "ens803f1");
  EXPECT_EQ(interface_with_address("127.0.0.5", kHost), "lo");
  EXPECT_EQ(interface_with_address("10.9.9.9", kHost), "");
}

TEST(ListInterfaces, FindsTheLoopback) {
  const auto all = list_interfaces();
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_THAT(*all, Contains(AllOf(testing::Field(&Interface::loopback, true),
                                   testing::Field(&Interface::up, true),
                                   testing::Field(&Interface::addresses, Contains("127.0.0.1")))));
  EXPECT_EQ(interface_with_address("127.0.0.1", *all), "lo");
}

}  // namespace
}  // namespace gradwire::topology
