#include "gradwire/bootstrap/mesh/mesh_builder.h"

#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bootstrap/warnings.h"
#include "tests/support/host.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

/// A rank on its own machine; rail i has the loopback address 127.0.(i+1).(rank+1).
struct Station {
  RankEndpoint endpoint;
  Listeners listeners;
};

Station station(Rank rank, int rails) {
  Station made;
  made.endpoint.host = fmt::format("host-{}", rank);
  made.endpoint.machine = made.endpoint.host;
  for (int rail = 0; rail < rails; ++rail) {
    const std::string host = fmt::format("127.0.{}.{}", rail + 1, rank + 1);
    net::Socket listener = std::move(*net::listen_on(*net::SocketAddress::of(host, 0)));
    made.endpoint.rails.push_back({net::local_address(listener), fmt::format("gw{}", rail)});
    made.listeners.push_back(std::make_unique<SocketListener>(std::move(listener)));
  }
  return made;
}

using Sockets = std::vector<std::vector<net::Socket>>;

MeshBuilder::Plan plan_of(Rank rank, std::vector<RankEndpoint> endpoints) {
  return {.rank = rank,
          .shared = {.secret = "secret", .purpose = mesh_purpose("0")},
          .endpoints = std::move(endpoints)};
}

/// Connects ranks with `rails[r]` rails each.
std::vector<Sockets> connect(const std::vector<int>& rails, bool one_machine = false) {
  std::vector<Station> stations;
  std::vector<RankEndpoint> endpoints;
  for (std::size_t rank = 0; rank < rails.size(); ++rank) {
    stations.push_back(station(static_cast<Rank>(rank), rails[rank]));
    if (one_machine) stations.back().endpoint.machine = "the only one";
    endpoints.push_back(stations.back().endpoint);
  }
  std::vector<Sockets> sockets(rails.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < rails.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeshBuilder builder(test::kNetwork, plan_of(static_cast<Rank>(rank), endpoints),
                          std::move(stations[rank].listeners));
      const Status built =
          builder.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20));
      EXPECT_TRUE(built) << built.error().message;
      sockets[rank] = builder.take_sockets();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sockets;
}

TEST(MeshBuilder, RailILeadsToRailI) {
  const auto sockets = connect({2, 3, 2});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(sockets[rank][rank].empty());
    for (std::size_t other = 0; other < 3; ++other) {
      if (other == rank) continue;
      ASSERT_EQ(sockets[rank][other].size(), 2u);
      for (std::size_t rail = 0; rail < 2; ++rail) {
        const net::Socket& socket = sockets[rank][other][rail];
        EXPECT_EQ(net::local_address(socket).host(),
                  fmt::format("127.0.{}.{}", rail + 1, rank + 1));
        EXPECT_EQ(net::peer_address(socket).host(),
                  fmt::format("127.0.{}.{}", rail + 1, other + 1));
      }
    }
  }
}

TEST(MeshBuilder, BothEndsMeanTheSameConnection) {
  const Warnings warnings;
  const auto sockets = connect({3, 3});
  EXPECT_EQ(warnings.text(), "");
  for (std::size_t rail = 0; rail < 3; ++rail) {
    EXPECT_EQ(net::local_address(sockets[0][1][rail]), net::peer_address(sockets[1][0][rail]));
    EXPECT_EQ(net::peer_address(sockets[0][1][rail]), net::local_address(sockets[1][0][rail]));
  }
}

TEST(MeshBuilder, TwoRanksHaveAsManyRailsAsTheOneWithFewer) {
  const auto sockets = connect({1, 3, 2});
  EXPECT_EQ(sockets[0][1].size(), 1u);
  EXPECT_EQ(sockets[1][2].size(), 2u);
  EXPECT_EQ(sockets[2][0].size(), 1u);
}

TEST(MeshBuilder, OnOneMachineOneConnectionSuffices) {
  const auto sockets = connect({3, 3}, /*one_machine=*/true);
  EXPECT_EQ(sockets[0][1].size(), 1u);
  EXPECT_EQ(sockets[1][0].size(), 1u);
}

TEST(MeshBuilder, AMissingRailIsNamed) {
  Station zero = station(0, 2);
  Station one = station(1, 2);
  zero.listeners.pop_back();  // No listener at its second rail.
  MeshBuilder builder(test::kNetwork, plan_of(1, {zero.endpoint, one.endpoint}),
                      std::move(one.listeners));
  const Status built = builder.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20));
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(built.error().message,
              HasSubstr("rank 0 (host host-0, " + zero.endpoint.rails[1].address.to_string() +
                        " over gw1)"));
}

TEST(MeshBuilder, NamesTheRailWithoutAConnection) {
  Station zero = station(0, 2);
  const Station one = station(1, 2);
  MeshBuilder builder(test::kNetwork, plan_of(0, {zero.endpoint, one.endpoint}),
                      std::move(zero.listeners));
  const Status built =
      builder.run(net::Deadline::after(test::kClock, milliseconds(50)), milliseconds(50));
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::timeout);
  EXPECT_THAT(built.error().message, AllOf(HasSubstr("over gw0)"), HasSubstr("over gw1)")));
}

TEST(MeshBuilder, AnInvalidRailIsRefused) {
  Station zero = station(0, 1);
  const Station one = station(1, 1);
  const auto plan = plan_of(0, {zero.endpoint, one.endpoint});
  Status refused;
  std::thread caller([&, to = zero.endpoint.rails[0].address] {
    const auto socket = connect_authenticated(test::kNetwork, to, plan.shared,
                                              {.from = 1, .to = 0, .world_size = 2, .rail = 1},
                                              net::Deadline::after(test::kClock, seconds(20)));
    if (!socket) refused = tl::unexpected<Error>(socket.error());
  });
  MeshBuilder builder(test::kNetwork, plan, std::move(zero.listeners));
  EXPECT_FALSE(
      builder.run(net::Deadline::after(test::kClock, milliseconds(500)), milliseconds(500)));
  caller.join();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::mismatch);
}

TEST(MeshBuilder, NamesARankBehindNat) {
  Station zero = station(0, 1);
  Station one = station(1, 1);
  RankEndpoint inside = one.endpoint;  // The endpoint that rank 1 tells; rank 0 sees another.
  inside.rails[0].address = *net::SocketAddress::of("127.0.9.9", 4321);
  const Warnings warnings;
  std::thread calling([&] {
    MeshBuilder caller(test::kNetwork, plan_of(1, {zero.endpoint, one.endpoint}),
                       std::move(one.listeners));
    EXPECT_TRUE(caller.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20)));
  });
  MeshBuilder builder(test::kNetwork, plan_of(0, {zero.endpoint, inside}),
                      std::move(zero.listeners));
  EXPECT_TRUE(builder.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20)));
  calling.join();
  EXPECT_THAT(warnings.text(), HasSubstr("rank 1 (host host-1, 127.0.9.9:4321 over gw0) is behind "
                                         "NAT: its connection arrives from 127.0.1.2. "));
}

TEST(MeshBuilder, APeerWithoutEncryptionIsRefused) {
  Station zero = station(0, 1);
  Station one = station(1, 1);
  MeshBuilder::Plan plan = plan_of(0, {zero.endpoint, one.endpoint});
  plan.encrypts = true;
  std::thread listening([&] {
    MeshBuilder listener(test::kNetwork, plan, std::move(zero.listeners));
    EXPECT_FALSE(
        listener.run(net::Deadline::after(test::kClock, milliseconds(300)), milliseconds(300)));
  });
  MeshBuilder caller(test::kNetwork, plan_of(1, plan.endpoints), std::move(one.listeners));
  const Status called = caller.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20));
  listening.join();
  ASSERT_FALSE(called);
  EXPECT_EQ(called.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(called.error().message,
              AllOf(HasSubstr("rank 1 does not encrypt"), HasSubstr("rank 0 (host host-0")));
}

TEST(MeshBuilder, WithPatienceAPortMayOpenLater) {
  Station zero = station(0, 1);
  Station one = station(1, 1);
  zero.listeners.clear();
  MeshBuilder::Plan plan = plan_of(1, {zero.endpoint, one.endpoint});
  plan.patience = seconds(60);
  MeshBuilder caller(test::kNetwork, plan, std::move(one.listeners));
  const Status early =
      caller.run(net::Deadline::after(test::kClock, milliseconds(300)), milliseconds(300));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind, ErrorKind::timeout);  // It was refused, and kept retrying.

  MeshBuilder listener(test::kNetwork, plan_of(0, {zero.endpoint, one.endpoint}),
                       listeners_of(std::move(*net::listen_on(zero.endpoint.rails[0].address))));
  std::thread thread([&] {
    EXPECT_TRUE(listener.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20)));
  });
  const Status later = caller.run(net::Deadline::after(test::kClock, seconds(20)), seconds(20));
  thread.join();
  EXPECT_TRUE(later) << later.error().message;
}

}  // namespace
}  // namespace gradwire::bootstrap
