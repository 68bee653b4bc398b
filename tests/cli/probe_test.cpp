#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "gradwire/cli/probe/echo.h"
#include "gradwire/cli/probe/rounds.h"

namespace gradwire {
namespace {

std::vector<int> own_machines(int hosts) {
  std::vector<int> machines;
  for (int i = 0; i < hosts; ++i) machines.push_back(i);
  return machines;
}

/// Every pair of hosts comes once, and nobody is in two pairs of a round.
void expect_all_pairs(const std::vector<int>& machines) {
  std::set<HostPair> seen;
  for (const auto& round : rounds_of_pairs(machines)) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_LT(a, b);
      EXPECT_TRUE(seen.insert({a, b}).second);
      const std::set<int> theirs{machines[static_cast<std::size_t>(a)],
                                 machines[static_cast<std::size_t>(b)]};
      for (const int machine : theirs) EXPECT_TRUE(busy.insert(machine).second);
    }
  }
  EXPECT_EQ(seen.size(), machines.size() * (machines.size() - 1) / 2);
}

TEST(RoundsTest, EveryPairOnceAndNobodyTwiceAtATime) {
  for (int hosts = 1; hosts <= 17; ++hosts) {
    expect_all_pairs(own_machines(hosts));
    const std::size_t least = hosts == 1 ? 0 : static_cast<std::size_t>(hosts + hosts % 2 - 1);
    EXPECT_EQ(rounds_of_pairs(own_machines(hosts)).size(), least) << hosts;
  }
}

TEST(RoundsTest, HostsOnOneMachineTakeTurns) {
  expect_all_pairs({0, 0, 0, 0});
  EXPECT_EQ(rounds_of_pairs({0, 0, 0, 0}).size(), 6u);
  expect_all_pairs({0, 0, 1, 1, 2});
}

SocketAddress loopback() {
  return *SocketAddress::of("127.0.0.1", 0);
}

std::vector<Socket> one_socket() {
  std::vector<Socket> sockets;
  sockets.push_back(*bind_datagrams(loopback()));
  return sockets;
}

TEST(EchoTest, AnswersThoseWhoKnowTheToken) {
  const Echo echo(one_socket(), echo_token("0123456789abcdef"));
  auto friendly =
      EchoClient::create(loopback(), "", echo.addresses().front(), echo_token("0123456789abcdef"));
  ASSERT_TRUE(friendly) << friendly.error().message;
  EXPECT_EQ(friendly->largest_packet(9000), 9000u);
  EXPECT_EQ(friendly->loss(1500, std::chrono::milliseconds(5)), 0.0);
  auto stranger =
      EchoClient::create(loopback(), "", echo.addresses().front(), echo_token("fedcba9876543210"));
  ASSERT_TRUE(stranger);
  EXPECT_EQ(stranger->passes(100, 1, std::chrono::milliseconds(20)), false);
}

TEST(EchoTest, WhereNobodyAnswersAllIsLost) {
  SocketAddress gone;
  { gone = local_address(*bind_datagrams(loopback())); }
  auto client = EchoClient::create(loopback(), "", gone, echo_token("0123456789abcdef"));
  ASSERT_TRUE(client);
  EXPECT_EQ(client->largest_packet(1500), 0u);
  EXPECT_EQ(client->loss(100, std::chrono::milliseconds(60)), 1.0);
}

}  // namespace
}  // namespace gradwire
