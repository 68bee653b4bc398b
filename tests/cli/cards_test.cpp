#include "gradwire/cli/launch/cards.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "gradwire/cli/launch/captured.h"
#include "gradwire/cli/launch/mpirun.h"
#include "gradwire/topology/interfaces.h"
#include "tests/cli/launched.h"
#include "tests/support/error_of.h"

namespace gradwire::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size())
    text.replace(at, old.size(), with);
  return text;
}

/// A host whose kernel shows these cards: eth0 without an address, gw0, gw1 and gw10, of which gw1
/// and gw10 have RDMA.
class CardScriptTest : public ::testing::Test {
 protected:
  CardScriptTest() {
    folder_.write(
        "dev",
        "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
        "    lo: 7 7 7 7\n  eth0: 0 0 0 0\n  gw10: 1 1 1 1\n   gw0:12 1 1 1\n   gw1: 1\n");
    folder_.write("route",
                  "Iface\tDestination\tGateway\ngw10\t000A\t0\ngw0\t000B\t0\ngw0\t000C\t0\n");
    folder_.write("if_inet6", "fe80 04 40 20 80      gw1\n0001 01 80 10 80       lo\n");
    for (const auto& [card, device, port] :
         {std::tuple("gw1", "mlx5_0", "0"), std::tuple("gw10", "mlx4_0", "1")}) {
      std::filesystem::create_directories(folder_ / card / "device" / "infiniband" / device);
      folder_.write(std::string(card) + "/dev_port", port);
    }
  }

  /// The variables that the script exports, by name without "_SOCKET_IFNAME".
  std::map<std::string, std::string> exported(const std::string& interfaces,
                                              const std::string& before = "") const {
    const std::string here = folder_.path().string();
    const std::string script = replaced(replaced(std::string(cli::kCardScript), "/proc/net", here),
                                        "/sys/class/net", here);
    const auto ran =
        value_or_throw(cli::run_captured({"sh", "-c",
                                          before + "\nGRADWIRE_INTERFACE='" + interfaces + "'" +
                                              script + "env | grep -E '^(GLOO|NCCL|UCX)_'"},
                                         std::chrono::seconds(30)));
    EXPECT_EQ(ran.err, "");
    std::map<std::string, std::string> variables;
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);)
      variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    return variables;
  }

  TemporaryFolder folder_;
};

TEST_F(CardScriptTest, PrefixesBecomeCompleteNames) {
  EXPECT_THAT(exported("gw"),
              UnorderedElementsAre(Pair("GLOO_SOCKET_IFNAME", "gw0,gw1,gw10"),
                                   Pair("NCCL_SOCKET_IFNAME", "=gw0,gw1,gw10"),
                                   Pair("NCCL_SOCKET_NTHREADS", "4"),
                                   Pair("NCCL_IB_HCA", "=mlx5_0:1,mlx4_0:2"),
                                   Pair("UCX_NET_DEVICES", "mlx5_0:1,mlx4_0:2,gw0,gw1,gw10")));
}

TEST_F(CardScriptTest, ANameIsNoPrefix) {
  EXPECT_THAT(exported("gw0"), UnorderedElementsAre(Pair("GLOO_SOCKET_IFNAME", "gw0"),
                                                    Pair("NCCL_SOCKET_IFNAME", "=gw0"),
                                                    Pair("UCX_NET_DEVICES", "gw0")));
  EXPECT_EQ(exported("gw1").at("UCX_NET_DEVICES"), "mlx5_0:1,gw1");
}

TEST_F(CardScriptTest, EachCardCountsOnceAndAnUnknownOneIsPassedOn) {
  EXPECT_EQ(exported("gw10, gw,lo").at("GLOO_SOCKET_IFNAME"), "gw10,gw0,gw1,lo");
  EXPECT_EQ(exported("ib0").at("NCCL_SOCKET_IFNAME"), "=ib0");
  // A card without an address is none of a prefix's.
  EXPECT_EQ(exported("eth").at("GLOO_SOCKET_IFNAME"), "eth");
  EXPECT_THAT(exported(""), IsEmpty());
}

TEST_F(CardScriptTest, KeepsWhatIsSet) {
  EXPECT_THAT(
      exported("gw",
               "export NCCL_SOCKET_IFNAME=ib NCCL_SOCKET_NTHREADS= NCCL_IB_HCA=x "
               "UCX_NET_DEVICES=all"),
      UnorderedElementsAre(Pair("GLOO_SOCKET_IFNAME", "gw0,gw1,gw10"),
                           Pair("NCCL_SOCKET_IFNAME", "ib"), Pair("NCCL_SOCKET_NTHREADS", ""),
                           Pair("NCCL_IB_HCA", "x"), Pair("UCX_NET_DEVICES", "all")));
}

TEST(CardsTest, AreThoseOfGradwiresRails) {
  for (const topology::Interface& one : value_or_throw(topology::list_interfaces())) {
    if (!one.up || one.addresses.empty()) continue;
    for (const std::string& wanted : {one.name, one.name.substr(0, 1)}) {
      const std::string names = cli::complete_names(wanted);
      EXPECT_THAT(cli::card_variables(wanted), Contains(Pair("GLOO_SOCKET_IFNAME", names)));
      EXPECT_THAT(names, HasSubstr(one.name));
    }
  }
  EXPECT_EQ(cli::complete_names("no-card,lo"), "no-card,lo");
  EXPECT_THAT(cli::card_variables(""), IsEmpty());
}

constexpr const char* kPrintCards =
    "echo $RANK: $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $UCX_NET_DEVICES";

TEST(CardsTest, ReachTheRanksUnlessTheUserHasSetThem) {
  const TemporaryFolder folder;
  const std::string rsh =
      folder.write("rsh", "#!/bin/sh\nshift\nexec env -i PATH=\"$PATH\" \"$@\"\n", 0755);
  const std::map<std::string, std::string> set{{"NCCL_SOCKET_IFNAME", "ib"}};
  // localhost is this host; the other one is not.
  for (const char* hosts : {"localhost", "elsewhere"}) {
    const std::vector<std::string> options{
        "--hosts",     hosts,           "--rsh",     rsh,           "-n", "1",
        "--no-prefix", "--master-addr", "127.0.0.1", "--interface", "lo"};
    Launched plain(run_script(options, kPrintCards));
    EXPECT_EQ(plain.wait(), 0) << plain.err();
    EXPECT_EQ(plain.out(), "0: lo =lo lo\n") << hosts;
    std::vector<std::string> more = options;
    more.insert(more.end(), {"--env", "GLOO_SOCKET_IFNAME=mine"});
    Launched kept(run_script(more, kPrintCards), set);
    EXPECT_EQ(kept.wait(), 0) << kept.err();
    EXPECT_EQ(kept.out(), "0: mine ib lo\n") << hosts;
  }
  Launched none(run_script({"-n", "1", "--no-prefix"}, kPrintCards), {{"GRADWIRE_INTERFACE", ""}});
  EXPECT_EQ(none.wait(), 0);
  EXPECT_EQ(none.out(), "0:\n");
}

TEST(CardsTest, ReachMpisRanksByTheirCompleteNames) {
  Launched run(run_script({"-n", "2", "--no-prefix", "--engine", "mpi", "--mpirun", GRADWIRE_MPIRUN,
                           "--interface", "lo,l"},
                          std::string(kPrintCards) + " $OMPI_MCA_btl_tcp_if_include"));
  EXPECT_EQ(run.wait(), 0) << run.out() << run.err();
  EXPECT_THAT(sorted_lines(run.out()), ElementsAre("0: lo =lo lo lo", "1: lo =lo lo lo"));
}

TEST(CardsTest, MpirunKeepsTheUsersOwnAndTakesWhatItCan) {
  cli::LaunchOptions options{.ranks = 2, .interface = "l"};
  using enum cli::MpirunKind;
  EXPECT_THAT(cli::mpirun_places(open_mpi, options), Contains("lo"));
  EXPECT_THAT(cli::mpirun_places(open_mpi, options), Contains("btl_tcp_if_include"));
  options.mpirun = {"mpirun", "--mca", "btl_tcp_if_include", "ib0"};
  EXPECT_THAT(cli::mpirun_places(open_mpi, options), Not(Contains("btl_tcp_if_include")));
  EXPECT_THAT(cli::mpirun_places(open_mpi, options), Contains("oob_tcp_if_include"));
  const auto places = cli::mpirun_places(hydra, options);
  EXPECT_EQ(*(std::ranges::find(places, "-iface") + 1), "lo");
  options.interface = "gw0,gw1";
  EXPECT_THAT(error_of([&] { cli::mpirun_places(hydra, options); }),
              HasSubstr("--interface gw0,gw1: MPICH uses one interface"));
}

}  // namespace
}  // namespace gradwire::test
