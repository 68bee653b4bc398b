#include "gradwire/topology/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::topology {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

constexpr double kGigabit = 1.17e8;

/// Hosts a, b, c, ... with one rail each; the rate from i to j is the minimum of theirs.
Cluster cluster_of(const std::vector<double>& rates) {
  Cluster cluster;
  const int hosts = static_cast<int>(rates.size());
  for (int i = 0; i < hosts; ++i) {
    cluster.hosts.push_back(
        {.name = std::string(1, static_cast<char>('a' + i)), .rails = {{.interface = "eth0"}}});
    for (int j = 0; j < hosts; ++j) {
      if (i == j) continue;
      const double rate =
          std::min(rates[static_cast<std::size_t>(i)], rates[static_cast<std::size_t>(j)]);
      cluster.paths.push_back({i, j, 0, microseconds(25), microseconds(20), rate, 1500, 0});
    }
  }
  set_rails_from_paths(cluster);
  return cluster;
}

TEST(ClusterTest, ARailIsAsFastAsItsBestPartnerSees) {
  const Cluster cluster = cluster_of({kGigabit, kGigabit / 2, kGigabit});
  EXPECT_EQ(cluster.hosts[0].rails[0].bytes_per_second, kGigabit);
  EXPECT_EQ(cluster.hosts[1].rails[0].bytes_per_second, kGigabit / 2);
  EXPECT_EQ(cluster.hosts[2].rails[0].latency, microseconds(25));
}

TEST(ClusterTest, MeasurementsThatAreNearlyEqualCountAsEqual) {
  const Topology topology =
      topology_of(cluster_of({kGigabit, 1.02 * kGigabit, 0.98 * kGigabit, 0.5 * kGigabit}));
  EXPECT_EQ(topology.port(0).bytes_per_second, topology.port(1).bytes_per_second);
  EXPECT_EQ(topology.port(0).bytes_per_second, topology.port(2).bytes_per_second);
  EXPECT_EQ(topology.port(3).bytes_per_second, 0.5 * kGigabit);
  EXPECT_EQ(topology.measured(0, 1), std::nullopt);
  EXPECT_EQ(topology.measured(0, 3), std::nullopt);
}

TEST(ClusterTest, APairThatDiffersFromItsEndsIsMeasured) {
  Cluster cluster = cluster_of({kGigabit, kGigabit, kGigabit});
  for (MeasuredPath& path : cluster.paths) {
    if (path.from == 0 && path.to == 1) path.bytes_per_second = 0.3 * kGigabit;
  }
  set_rails_from_paths(cluster);
  const Topology topology = topology_of(cluster);
  ASSERT_TRUE(topology.measured(0, 1));
  EXPECT_EQ(topology.measured(0, 1)->bytes_per_second, 0.3 * kGigabit);
  EXPECT_EQ(topology.measured(1, 0), std::nullopt);
  EXPECT_EQ(topology.measured(0, 2), std::nullopt);
}

TEST(ClusterTest, RailsAddUp) {
  Cluster cluster = cluster_of({kGigabit, kGigabit});
  for (MeasuredHost& host : cluster.hosts) host.rails.push_back({.interface = "eth1"});
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    cluster.paths.push_back(
        {from, to, 1, microseconds(40), microseconds(40), 0.4 * kGigabit, 1500, 0});
  }
  set_rails_from_paths(cluster);
  const Topology topology = topology_of(cluster);
  EXPECT_DOUBLE_EQ(topology.path(0, 1).bytes_per_second, 1.4 * kGigabit);
  EXPECT_EQ(topology.path(0, 1).latency, microseconds(25));
  EXPECT_EQ(topology.measured(0, 1), std::nullopt);
}

TEST(ClusterTest, HostsHaveAsManyRanksAsTheyHadOrAsAJobHasThere) {
  Cluster cluster = cluster_of({kGigabit, kGigabit / 2, kGigabit});
  cluster.hosts[1].ranks = 2;
  cluster.hosts[1].inside = Link{microseconds(2), 3e9};
  const Topology all = topology_of(cluster);
  EXPECT_EQ(all.ranks(), 4);
  EXPECT_TRUE(all.same_host(1, 2));
  EXPECT_EQ(all.path(1, 2), *cluster.hosts[1].inside);

  const auto job = topology_for(cluster, {"c", "b", "c"});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->hosts(), 2);
  EXPECT_TRUE(job->same_host(0, 2));
  EXPECT_EQ(job->port(1).bytes_per_second, kGigabit / 2);
  EXPECT_EQ(job->host(0).name, "c");
}

TEST(ClusterTest, AHostThatWasNotMeasuredIsRefused) {
  const auto job = topology_for(cluster_of({kGigabit, kGigabit}), {"a", "x"});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(job.error().message, HasSubstr("unknown host in the topology \"x\""));
  EXPECT_THAT(job.error().message, HasSubstr("known: a, b"));
}

TEST(ClusterTest, ABlackHoleIsWhatBothEndsMaySendAndDoesNotArrive) {
  Cluster cluster = cluster_of({kGigabit, kGigabit});
  MeasuredPath path = cluster.paths.front();
  EXPECT_FALSE(is_black_hole(cluster, path));
  path.largest_packet = 1400;
  EXPECT_TRUE(is_black_hole(cluster, path));
  path.largest_packet = 0;  // No datagram at all: unknown.
  EXPECT_FALSE(is_black_hole(cluster, path));
  path.largest_packet = 1500;
  cluster.hosts[0].rails[0].mtu = 9000;  // The other end would not send them either.
  EXPECT_FALSE(is_black_hole(cluster, path));
  path.largest_packet = kMaxPacketBytes;
  // Loopback interfaces have this MTU.
  for (MeasuredHost& host : cluster.hosts) host.rails[0].mtu = 65536;
  EXPECT_FALSE(is_black_hole(cluster, path));
}

}  // namespace
}  // namespace gradwire::topology
