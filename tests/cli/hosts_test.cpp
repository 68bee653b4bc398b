#include "gradwire/cli/launch/hosts.h"

#include <filesystem>
#include <fstream>

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
  EXPECT_THAT(described(parse_hosts("[fd00::1]:2,me@[fd00::2]:3,[fd00::3]")),
              ElementsAre("fd00::1:2", "me@fd00::2:3", "fd00::3"));
}

TEST(HostsTest, ListErrorsShowTheList) {
  for (const char* bad : {"", "a,,b", "a,", ",a", "a:0", "a:x", "a:", "a:5000", "-oProxy=x",
                          "[fd00::1", "[fd00::1]2", "[fd00::1]:", "[]:2"}) {
    EXPECT_THAT(error_of([&] { parse_hosts(bad); }), HasSubstr(std::string("--hosts ") + bad));
  }
}

TEST(HostsTest, File) {
  const auto hosts = parse_hostfile(
      "# a cluster\n\na slots=2 address=10.0.0.1  # the first\n  b max_slots=4\r\nc:3\na slots=1",
      "hosts.txt");
  EXPECT_THAT(described(hosts), ElementsAre("a:3@10.0.0.1", "b", "c:3"));
}

TEST(HostsTest, FileOfAnEditorThatMarksUnicode) {
  const auto hosts = parse_hostfile("\xEF\xBB\xBF[fd00::1]:2\r\n[fd00::2] slots=3", "hosts.txt");
  EXPECT_THAT(described(hosts), ElementsAre("fd00::1:2", "fd00::2:3"));
}

TEST(HostsTest, AnAddressOfThisMachineIsThisHost) {
  EXPECT_TRUE(is_this_host({this_host_name(), "", {}}));
  EXPECT_FALSE(is_this_host({"192.0.2.1", "", {}}));  // No host has it (RFC 5737).
  EXPECT_FALSE(is_this_host({"nobody-of-this-name@localhost", "", {}}));
}

TEST(InterpreterTest, PythonIsTheFirstInThePathOnEveryHost) {
  const std::string folder = ::testing::TempDir() + "gradwire-interpreter";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/python3") << "#!/bin/sh\n";
  std::filesystem::permissions(folder + "/python3", std::filesystem::perms::owner_all);
  const std::string path = "/no-such-folder:" + folder + ":/bin";
  EXPECT_THAT(with_interpreter({"train.py", "--lr", "1"}, path),
              ElementsAre(folder + "/python3", "train.py", "--lr", "1"));
  EXPECT_THAT(with_interpreter({"python3", "x"}, path), ElementsAre(folder + "/python3", "x"));
  EXPECT_THAT(with_interpreter({"/usr/bin/python3"}, path), ElementsAre("/usr/bin/python3"));
  EXPECT_THAT(with_interpreter({"python-config"}, path), ElementsAre("python-config"));
  EXPECT_THAT(with_interpreter({"python3"}, "/no-such-folder"), ElementsAre("python3"));
  std::filesystem::remove_all(folder);
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
  const HostEntry here{"localhost", "", {}};
  const HostEntry other{"127.0.0.1", "", {}};
  EXPECT_EQ(default_master_address(here, nullptr), "127.0.0.1");
  EXPECT_EQ(default_master_address({"a", "", {}}, &other), "a");
  EXPECT_THAT(error_of([&] { default_master_address(here, &other); }), HasSubstr("--master-addr"));
  const HostEntry unknown{"no-such-host.invalid", "", {}};
  EXPECT_THAT(error_of([&] { default_master_address(here, &unknown); }),
              AllOf(HasSubstr("no-such-host.invalid"), HasSubstr("--master-addr")));
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
