#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/cli/doctor/affected_paths.h"
#include "gradwire/cli/doctor/diagnosis.h"

namespace gradwire::cli {
namespace {

using Outcome = Reachability::Outcome;
using std::chrono::microseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string ip_of(int host) {
  return "10.0.0." + std::to_string(host + 1);
}

/// Hosts a, b, c, ..., without any fault.
ClusterReport healthy(int hosts) {
  ClusterReport all;
  all.ranks = hosts;
  topology::Cluster cluster;
  for (int i = 0; i < hosts; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    HostReport report{.name = name, .failure = {}, .remedy = {}, .info = {}, .reach = {}};
    report.info = HostInfo{.host = name,
                           .version = "1.0.0",
                           .build = "12345678",
                           .protocol = 3,
                           .torch = "2.13.0",
                           .python_program = "/opt/venv/bin/python3",
                           .python = "gradwire 1.0.0 (extension 1) and PyTorch 2.13.0",
                           .system = "Linux",
                           .max_files = 4096,
                           .max_receive_buffer = 6 << 20,
                           .max_send_buffer = 4 << 20,
                           .max_requested_buffer = 384 << 10,
                           .interfaces = "lo (127.0.0.1), eth0 (" + ip_of(i) + ")"};
    report.info->rails.push_back(
        {.interface = "eth0", .address = ip_of(i), .endpoint = ip_of(i) + ":4000", .mtu = 1500});
    report.reach.emplace();
    cluster.hosts.push_back({.name = name, .rails = {{.interface = "eth0"}}});
    for (int j = 0; j < hosts; ++j) {
      report.info->names.push_back({.name = std::string(1, static_cast<char>('a' + j)),
                                    .addresses = {ip_of(j)},
                                    .error = {}});
      if (i == j) continue;
      report.reach->push_back({.to = j, .error = {}, .largest_packet = 1500});
      cluster.paths.push_back({i, j, 0, microseconds(25), microseconds(20), 1.2e8, 1500, 0});
    }
    all.reports.push_back(std::move(report));
  }
  all.cluster = std::move(cluster);
  return all;
}

HostInfo& info_of(ClusterReport& all, int host) {
  return *all.reports[static_cast<std::size_t>(host)].info;
}

Reachability& reach_of(ClusterReport& all, int from, int to) {
  for (Reachability& one : *all.reports[static_cast<std::size_t>(from)].reach) {
    if (one.to == to) return one;
  }
  throw Exception(ErrorKind::invalid_argument, "no such path");
}

/// Returns the only finding, as text with its remedy.
std::string only_finding(const ClusterReport& all, bool wrong = true) {
  const std::vector<Finding> findings = diagnose(all);
  if (findings.size() != 1) return std::to_string(findings.size()) + ": " + describe(all, findings);
  EXPECT_EQ(findings.front().wrong, wrong) << findings.front().what;
  EXPECT_FALSE(findings.front().remedy.empty());
  return findings.front().what + " | " + findings.front().remedy;
}

TEST(DiagnosisTest, HealthyHostsHaveNothing) {
  for (const int hosts : {1, 2, 5}) EXPECT_THAT(diagnose(healthy(hosts)), IsEmpty());
  EXPECT_THAT(describe(healthy(2), {}),
              HasSubstr("measured over eth0: 960 Mb/s, latency 20 us\n\nNo problems found."));
}

TEST(DiagnosisTest, AHostThatDoesNotAnswer) {
  ClusterReport all = healthy(3);
  all.reports[1].info.reset();
  all.reports[1].reach.reset();
  all.reports[1].failure = "\"ssh b sh\" failed";
  all.reports[1].remedy = "ssh-copy-id";
  all.cluster.reset();
  EXPECT_EQ(only_finding(all), "b: \"ssh b sh\" failed | ssh-copy-id");
  EXPECT_THAT(describe(all, diagnose(all)),
              AllOf(HasSubstr("b: not examined"), HasSubstr("speed of the links was not measured"),
                    HasSubstr("1 problem found.")));
}

TEST(DiagnosisTest, OtherBuildsAndSystems) {
  ClusterReport all = healthy(3);
  info_of(all, 2).version = "0.9.0";
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("1.0.0 (build 12345678, protocol 3) on a, b"),
                                       HasSubstr("0.9.0 (build 12345678, protocol 3) on c")));
  all = healthy(3);
  info_of(all, 0).build = "87654321";
  EXPECT_THAT(only_finding(all), HasSubstr("install the same build"));
  all = healthy(3);
  info_of(all, 0).system = "Linux 2";
  EXPECT_THAT(only_finding(all, false), HasSubstr("different systems"));
  all = healthy(3);
  info_of(all, 1).protocol = 4;
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("protocol 3) on a, c"), HasSubstr("4) on b")));
}

TEST(DiagnosisTest, OtherPyTorchesAndPythonPackages) {
  ClusterReport all = healthy(3);
  info_of(all, 0).torch = "2.12.1";
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("different versions of PyTorch: 2.13.0 on b, c; 2.12.1 on a"),
                    HasSubstr("pip install torch==2.13.0")));
  all = healthy(3);
  info_of(all, 1).torch.clear();  // gradwire only, which is another build.
  EXPECT_THAT(diagnose(all), IsEmpty());
  info_of(all, 1).torch_problem = "libtorch_cpu.so: cannot open shared object file";
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("b: gradwire train does not start: libtorch_cpu.so: cannot open"),
                    HasSubstr("on b: ")));
  all = healthy(3);
  info_of(all, 2).python = "gradwire 1.0.0 (extension 2) and PyTorch 2.13.0";
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("(extension 1) and PyTorch 2.13.0 on a, b"),
                                       HasSubstr("(extension 2) and PyTorch 2.13.0 on c"),
                                       HasSubstr("install the same wheel")));
  all = healthy(3);
  info_of(all, 2).python.clear();
  EXPECT_THAT(only_finding(all),
              HasSubstr("c: there is no /opt/venv/bin/python3 with gradwire; gradwire 1.0.0"));
  info_of(all, 0).python.clear();
  EXPECT_THAT(only_finding(all, false), HasSubstr("a, c: there is no /opt/venv/bin/python3"));
  info_of(all, 1).python.clear();
  EXPECT_THAT(diagnose(all), IsEmpty());
}

TEST(DiagnosisTest, MasterAddress) {
  ClusterReport all = healthy(3);
  info_of(all, 0).master_problem = "cannot listen at 10.0.0.1:29400: another program does";
  EXPECT_THAT(
      only_finding(all),
      AllOf(HasSubstr("a: rank 0 could not listen for the other ranks: cannot listen at 10.0.0.1:"),
            HasSubstr("on a: ss -lntp"), HasSubstr("--master-port")));
  all = healthy(3);
  info_of(all, 0).master = "10.0.0.1:29400";
  for (const int from : {1, 2}) {
    all.reports[static_cast<std::size_t>(from)].reach->push_back(
        {.to = 0, .rail = kMasterRail, .outcome = Outcome::no_answer, .error = "no answer"});
  }
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("b, c cannot reach a at 10.0.0.1:29400, where rank 0 listens: no"),
                    HasSubstr("on a: nft insert rule inet filter input tcp dport 29400 accept"),
                    HasSubstr("--master-port")));
  // Reported as an unreachable host, not as a port.
  reach_of(all, 2, 0).outcome = Outcome::no_answer;
  reach_of(all, 2, 0).error = "no answer";
  const std::string text = describe(all, diagnose(all));
  EXPECT_THAT(text, AllOf(HasSubstr("b cannot reach a at 10.0.0.1:29400, where"),
                          HasSubstr("c cannot reach a at 10.0.0.1:4000 (eth0)"),
                          HasSubstr("2 problems found")));
}

TEST(DiagnosisTest, Names) {
  ClusterReport all = healthy(3);
  info_of(all, 2).names[0] = {.name = "a", .addresses = {}, .error = "cannot find \"a\""};
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("c: cannot find \"a\""), HasSubstr("/etc/hosts"),
                                       HasSubstr("--master-addr")));
  all = healthy(3);
  info_of(all, 2).names[1] = {.name = "b", .addresses = {}, .error = "cannot find \"b\""};
  EXPECT_THAT(only_finding(all, false), HasSubstr("cannot find \"b\""));
  all = healthy(3);
  info_of(all, 0).names[0].addresses = {"127.0.1.1"};
  EXPECT_THAT(diagnose(all), IsEmpty());  // Rank 0 listens at another address.
  info_of(all, 0).master = "127.0.1.1:29400";
  EXPECT_THAT(only_finding(all), HasSubstr("on a the name a resolves to 127.0.1.1, the loopback"));
  all = healthy(3);
  info_of(all, 1).names[1].addresses = {"127.0.1.1"};  // Does not affect other hosts.
  EXPECT_THAT(diagnose(all), IsEmpty());
  info_of(all, 1).names[0].addresses = {"10.0.0.77"};
  EXPECT_THAT(only_finding(all), HasSubstr("10.0.0.77, which is not an address of that host"));
}

TEST(DiagnosisTest, Limits) {
  ClusterReport all = healthy(2);
  info_of(all, 1).max_files = 512;
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("b: a process may open at most 512"), HasSubstr("hard nofile")));
  all = healthy(2);
  all.ranks = 4000;
  EXPECT_EQ(diagnose(all).size(), 2u);
  all = healthy(2);
  info_of(all, 0).max_send_buffer = 1 << 18;
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("a: TCP may buffer only 256 KiB"),
                                       HasSubstr("sysctl -w net.ipv4.tcp_wmem=")));
  all = healthy(2);
  // 10 Gb/s and a round trip of 2 ms: 2.5 MB in flight, twice that to buffer.
  for (topology::MeasuredPath& path : all.cluster->paths) {
    path.bytes_per_second = 1.25e9;
    path.shortest_latency = std::chrono::milliseconds(1);
  }
  EXPECT_EQ(diagnose(all).size(), 2u);
  EXPECT_THAT(diagnose(all).front().what, HasSubstr("net.ipv4.tcp_wmem"));
}

TEST(DiagnosisTest, ReceiveBuffersThatRanksAskFor) {
  ClusterReport all = healthy(3);
  info_of(all, 0).max_requested_buffer = 212992;  // Linux's default.
  info_of(all, 2).max_requested_buffer = 208 << 10;
  EXPECT_THAT(only_finding(all, false),
              AllOf(HasSubstr("a, c: ranks request receive buffers of 384 KiB and get 208 KiB"),
                    HasSubstr("on a, c: sysctl -w net.core.rmem_max=4194304")));
  for (const int host : {0, 2}) info_of(all, host).max_requested_buffer = 0;  // Unknown.
  EXPECT_THAT(diagnose(all), IsEmpty());
}

TEST(DiagnosisTest, APortThatIsTaken) {
  ClusterReport all = healthy(2);
  info_of(all, 1).port_problems = {"cannot listen at 10.0.0.2:29377"};
  info_of(all, 1).rails[0].endpoint.clear();
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("b: cannot listen at 10.0.0.2:29377"), HasSubstr("ss -lntup"),
                    HasSubstr("another one with --port"), Not(HasSubstr("--interface"))));
}

TEST(DiagnosisTest, Interfaces) {
  ClusterReport all = healthy(3);
  info_of(all, 1).rails[0].loopback = true;
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("b would use its loopback interface"),
                                       HasSubstr("b has lo (127.0.0.1), eth0 (10.0.0.2)")));
  all = healthy(3);
  info_of(all, 2).rails[0].address = ip_of(0);
  EXPECT_THAT(only_finding(all), HasSubstr("a, c all have the address 10.0.0.1 (eth0)"));
  info_of(all, 2).host = "a";  // Two ranks on one host.
  EXPECT_THAT(diagnose(all), IsEmpty());
  all = healthy(3);
  info_of(all, 0).rails[0].mtu = 9000;
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("1500 on b, c; 9000 on a"),
                                       HasSubstr("on a: ip link set dev eth0 mtu 1500")));
  all = healthy(3);
  info_of(all, 2).problems = {
      "network interface \"eth7\" is not the name or prefix of any interface"};
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("c: network interface \"eth7\""), HasSubstr("--interface")));
  all = healthy(3);
  info_of(all, 2).faster = {"eth1 (10.1.0.3), 10 Gb/s"};
  EXPECT_THAT(only_finding(all, false),
              HasSubstr("c would use eth0, although eth1 (10.1.0.3), 10 Gb/s is available"));
  all = healthy(2);
  info_of(all, 1).rails.push_back({.interface = "eth1", .address = "10.1.0.2", .mtu = 1500});
  EXPECT_THAT(only_finding(all, false), HasSubstr("1 on a, 2 on b"));
}

TEST(OtherCardsTest, AreThoseThatDifferFromTheRails) {
  std::map<std::string, std::string> set;
  const auto environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = set.find(std::string(name));
    return found == set.end() ? std::nullopt : std::optional(found->second);
  };
  const auto cards = [&](const std::vector<std::string>& rails) {
    return other_cards(rails, environment, "lo");
  };
  // Gloo takes the card of the host's name; what NCCL and UCX take is not known.
  EXPECT_THAT(cards({"eth0"}), ElementsAre("Gloo lo"));
  EXPECT_THAT(cards({"lo"}), IsEmpty());
  set = {
      {"GLOO_SOCKET_IFNAME", "eth0"}, {"NCCL_SOCKET_IFNAME", "=eth0"}, {"UCX_NET_DEVICES", "eth0"}};
  EXPECT_THAT(cards({"eth0"}), IsEmpty());
  EXPECT_THAT(cards({"eth1"}), ElementsAre("Gloo eth0", "NCCL eth0", "UCX eth0"));
  set = {{"GLOO_SOCKET_IFNAME", "eth0,eth1"},
         {"NCCL_SOCKET_IFNAME", "=eth0,eth1"},
         {"NCCL_IB_HCA", "=mlx5_0:1"}};
  EXPECT_THAT(cards({"eth0", "eth1"}),
              ElementsAre("Gloo one of eth0,eth1 for each operation", "NCCL mlx5_0:1"));
}

TEST(DiagnosisTest, CardsOfOtherEnginesArePrinted) {
  ClusterReport all = healthy(2);
  EXPECT_THAT(describe(all, {}), Not(HasSubstr("other engines")));
  info_of(all, 1).other_cards = {"Gloo lo", "UCX mlx5_0:1,eth0"};
  EXPECT_THAT(describe(all, {}), HasSubstr("b: gradwire 1.0.0, eth0 10.0.0.2 MTU 1500\n"
                                           "  other engines: Gloo lo; UCX mlx5_0:1,eth0\n"));
}

TEST(DiagnosisTest, UnreachablePathsHaveACause) {
  const std::vector<std::pair<Outcome, const char*>> expected{
      {Outcome::no_answer, "a firewall drops the packets"},
      {Outcome::refused, "a firewall rejects"},
      {Outcome::no_route, "ip route add"},
      {Outcome::unauthenticated, "another machine or program has the address 10.0.0.2"}};
  for (const auto& [outcome, remedy] : expected) {
    ClusterReport all = healthy(3);
    for (const int from : {0, 2}) {
      reach_of(all, from, 1).outcome = outcome;
      reach_of(all, from, 1).error = "words";
    }
    EXPECT_THAT(
        only_finding(all),
        AllOf(HasSubstr("a, c cannot reach b at 10.0.0.2:4000 (eth0): words"), HasSubstr(remedy)));
  }
}

TEST(DiagnosisTest, AFirewallOnAllHostsIsOneFindingWithOneRule) {
  ClusterReport all = healthy(3);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      reach_of(all, from, to).outcome = Outcome::no_answer;
      reach_of(all, from, to).error = "words";
    }
  }
  EXPECT_THAT(
      only_finding(all),
      AllOf(HasSubstr("there are no connections between all hosts over eth0: for example, c "
                      "cannot reach b at 10.0.0.2:4000 (eth0): words"),
            HasSubstr("run jobs with --port 29400"), HasSubstr("on a, b, c: nft insert"),
            HasSubstr("tcp dport 29400 accept"), Not(HasSubstr("dport 4000"))));
  all.port = 29777;
  EXPECT_THAT(only_finding(all), AllOf(HasSubstr("the job's port is 29777"),
                                       HasSubstr("dport 29777 accept"), Not(HasSubstr("29400"))));
}

TEST(DiagnosisTest, BlackHolesLossesDetoursAndSilentDatagrams) {
  ClusterReport all = healthy(3);
  reach_of(all, 0, 1).largest_packet = 1400;
  reach_of(all, 1, 0).largest_packet = 1410;
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("more than 1400 bytes are lost from a to b, from b to a, over eth0"),
                    HasSubstr("ip link set dev eth0 mtu 1400")));
  all = healthy(3);
  for (const int to : {0, 1}) reach_of(all, 2, to).datagrams = 2000;
  reach_of(all, 2, 0).lost = 40;
  EXPECT_THAT(diagnose(all), SizeIs(1));
  reach_of(all, 2, 1).lost = 60;
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("3.00 % of packets (60 of 2000) are lost from c to every"),
                    HasSubstr("ethtool -S eth0")));
  reach_of(all, 2, 0).lost = reach_of(all, 2, 1).lost = 1;  // May be a coincidence.
  EXPECT_THAT(diagnose(all), IsEmpty());
  all = healthy(3);
  reach_of(all, 1, 0).detour = reach_of(all, 1, 2).detour = true;
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("packets from eth0 (10.0.0.2) of b to 10.0.0.1 leave by another"),
                    HasSubstr("arp_ignore=1")));
  all = healthy(2);
  reach_of(all, 0, 1).largest_packet = 0;
  EXPECT_THAT(only_finding(all, false), HasSubstr("datagrams (UDP) do not get through"));
  reach_of(all, 0, 1).has_echo = false;  // No host probed there, so nothing is known.
  EXPECT_THAT(diagnose(all), IsEmpty());
}

TEST(DiagnosisTest, SlowLinksLongWaysAndClocks) {
  ClusterReport all = healthy(4);
  for (topology::MeasuredPath& path : all.cluster->paths) {
    if (path.from == 3 || path.to == 3) path.bytes_per_second = 1.2e7;
  }
  EXPECT_THAT(only_finding(all),
              AllOf(HasSubstr("slow between d and every other host, over eth0: 96 Mb/s where "
                              "others have 960 Mb/s"),
                    HasSubstr("ethtool eth0")));
  all = healthy(2);
  for (const int host : {0, 1}) info_of(all, host).rails[0].megabits = 1000;
  EXPECT_THAT(diagnose(all), IsEmpty());
  all.cluster->paths.front().bytes_per_second = 1e7;
  all.cluster->paths.back().bytes_per_second = 1.1e7;
  EXPECT_THAT(diagnose(all).front().what,
              HasSubstr("80 Mb/s from a to b, over eth0, on links of 1 Gb/s"));
  all = healthy(2);
  info_of(all, 0).rails[0].megabits = 1000;
  info_of(all, 1).rails[0].megabits = 100;
  EXPECT_THAT(only_finding(all), HasSubstr("eth0 of b has negotiated 100 Mb/s, others 1 Gb/s"));
  all = healthy(3);
  all.cluster->paths.front().shortest_latency = std::chrono::milliseconds(3);
  EXPECT_THAT(only_finding(all, false), HasSubstr("the latency is high from a to b"));
  all = healthy(3);
  all.cluster->hosts[2].clock_offset = -std::chrono::seconds(3);
  EXPECT_THAT(only_finding(all, false),
              AllOf(HasSubstr("the clock of c is 3 s behind that of a"), HasSubstr("chronyc")));
}

TEST(DiagnosisTest, MeshErrorsCountIfNothingElseExplainsThem) {
  ClusterReport all = healthy(2);
  all.reports[1].mesh_error = "rank 1 has no connection";
  EXPECT_THAT(only_finding(all), HasSubstr("b: rank 1 has no connection"));
  info_of(all, 0).max_files = 10;
  EXPECT_THAT(only_finding(all), HasSubstr("at most 10"));
}

TEST(DiagnosisTest, ReportsRoundTripThroughJson) {
  ClusterReport all = healthy(2);
  HostInfo& info = info_of(all, 0);
  info.problems = {"one", "two"};
  info.port_problems = {"three"};
  info.master = "10.0.0.1:29400";
  info.master_problem = "four";
  info.torch_problem = "five";
  info.other_cards = {"six"};
  info.token = "token";
  const auto read = parse_host_info(to_json(info));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(info));
  EXPECT_FALSE(parse_host_info("{}"));

  reach_of(all, 0, 1) = {1, 2, Outcome::no_route, "words", false, 1400, 500, 7, true};
  const auto reach = parse_reachability(to_json(*all.reports[0].reach));
  ASSERT_TRUE(reach) << reach.error().message;
  EXPECT_EQ(to_json(*reach), to_json(*all.reports[0].reach));
}

TEST(NamePathsTest, FindsTheHostThatAllHaveInCommon) {
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<HostsFromTo> all{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};
  EXPECT_EQ(name_paths({{0, 1}, {1, 0}, {1, 2}, {2, 1}}, all, names),
            "between b and every other host");
  EXPECT_EQ(name_paths(all, all, names), "between all hosts");
  EXPECT_EQ(name_paths({{1, 0}, {1, 2}}, all, names), "from b to every other host");
  EXPECT_EQ(name_paths({{0, 2}, {1, 2}}, all, names), "from every other host to c");
  EXPECT_EQ(name_paths({{0, 1}, {1, 2}}, all, names), "from a to b, from b to c");
  EXPECT_EQ(name_paths({{0, 1}, {1, 0}}, {{0, 1}, {1, 0}}, {"a", "b"}), "from a to b, from b to a");
}

}  // namespace
}  // namespace gradwire::cli
