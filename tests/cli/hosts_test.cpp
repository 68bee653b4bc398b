#include "gradwire/cli/launch/hosts.h"

#include <gmock/gmock.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/launch/launch.h"

namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> described(const std::vector<HostEntry>& hosts) {
  std::vector<std::string> all;
  for (const HostEntry& host : hosts) {
    all.push_back(host.name + (host.slots ? ":" + std::to_string(*host.slots) : "") +
                  (host.address.empty() ? "" : "@" + host.address));
  }
  return all;
}

template <class Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
    return e.what();
  }
  return "no error";
}

TEST(HostsTest, List) {
  EXPECT_THAT(described(parse_hosts("a,b")), ElementsAre("a", "b"));
  EXPECT_THAT(described(parse_hosts("a:2,user@b:3")), ElementsAre("a:2", "user@b:3"));
  EXPECT_THAT(described(parse_hosts("a,b,a")), ElementsAre("a:2", "b"));
  EXPECT_THAT(described(parse_hosts("fe80::1,b")), ElementsAre("fe80::1", "b"));
}

TEST(HostsTest, ListErrorsShowTheList) {
  for (const char* bad : {"", "a,,b", "a,", ",a", "a:0", "a:x", "a:", "a:5000", "-oProxy=x"}) {
    EXPECT_THAT(error_of([&] { parse_hosts(bad); }), HasSubstr(std::string("--hosts ") + bad));
  }
}

TEST(HostsTest, File) {
  const auto hosts = parse_hostfile(
      "# a cluster\n\na slots=2 address=10.0.0.1  # the first\n  b max_slots=4\r\nc:3\na slots=1",
      "hosts.txt");
  EXPECT_THAT(described(hosts), ElementsAre("a:3@10.0.0.1", "b", "c:3"));
}

TEST(HostsTest, FileErrorsNameTheLine) {
  const auto error = [](const char* text) {
    return error_of([&] { parse_hostfile(text, "hosts.txt"); });
  };
  EXPECT_THAT(error("a\n\nb slots=none"), AllOf(HasSubstr("hosts.txt:3"), HasSubstr("none")));
  EXPECT_THAT(error("a slot=2"), AllOf(HasSubstr("hosts.txt:1"), HasSubstr("\"slots\"")));
  EXPECT_THAT(error("a 2"), AllOf(HasSubstr("hosts.txt:1"), HasSubstr("slots=2")));
  EXPECT_THAT(error("# nothing\n"), AllOf(HasSubstr("hosts.txt"), HasSubstr("no host")));
}

TEST(HostsTest, Addresses) {
  EXPECT_EQ(address_of({"user@a", "", {}}), "a");
  EXPECT_EQ(address_of({"a", "10.0.0.1", {}}), "10.0.0.1");
  EXPECT_TRUE(is_this_host({"localhost", "", {}}));
  EXPECT_TRUE(is_this_host({this_host_name(), "", {}}));
  EXPECT_FALSE(is_this_host({"elsewhere.invalid", "", {}}));
}

std::vector<std::size_t> hosts_of(const std::vector<Placement>& placements) {
  std::vector<std::size_t> hosts;
  for (const Placement& placement : placements) hosts.push_back(placement.host);
  return hosts;
}

TEST(PlacementTest, SpreadsEvenlyWithoutSlots) {
  const auto placements = place_ranks(parse_hosts("a,b"), 5);
  EXPECT_THAT(hosts_of(placements), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_EQ(placements[4].rank, 4);
  EXPECT_EQ(placements[4].local_rank, 1);
  EXPECT_EQ(placements[4].local_world_size, 2);
  EXPECT_THAT(hosts_of(place_ranks(parse_hosts("a,b"), {})), ElementsAre(0, 1));
  EXPECT_THAT(hosts_of(place_ranks(parse_hosts("a,b,c"), 1)), ElementsAre(0));
}

TEST(PlacementTest, FillsSlots) {
  EXPECT_THAT(hosts_of(place_ranks(parse_hosts("a:2,b:3"), {})), ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(hosts_of(place_ranks(parse_hosts("a:2,b:3"), 3)), ElementsAre(0, 0, 1));
  EXPECT_THAT(error_of([] { place_ranks(parse_hosts("a:2,b"), 4); }),
              AllOf(HasSubstr("4 ranks"), HasSubstr("3 slots")));
  EXPECT_THAT(error_of([] { place_ranks(parse_hosts("a:4000,b:4000"), {}); }), HasSubstr("4096"));
}

TEST(MasterTest, LoopbackOnlyIfAllRanksAreHere) {
  EXPECT_EQ(default_master_address({"localhost", "", {}}, true), "127.0.0.1");
  EXPECT_EQ(default_master_address({"a", "", {}}, false), "a");
  EXPECT_THAT(error_of([] {
                default_master_address({"localhost", "", {}}, false);
              }),
              HasSubstr("--master-addr"));
}

TEST(MasterTest, PortIsOneThatCanBeListenedOn) {
  EXPECT_GT(free_master_port("127.0.0.1"), 1023);
  // An address that no host has (RFC 5737): any port below the ephemeral ones is accepted.
  const int guess = free_master_port("192.0.2.1");
  EXPECT_TRUE(guess >= 20000 && guess < 30000) << guess;
  EXPECT_THAT(error_of([] { free_master_port("0.0.0.0"); }), HasSubstr("--master-addr"));
}

}  // namespace
}  // namespace gradwire::cli
