#include "gradwire/topology/topology.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::topology {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;

Link link(int latency_us, double rate) {
  return {.latency = microseconds(latency_us), .bytes_per_second = rate};
}

TEST(Topology, DefaultsToOneRankPerHost) {
  const Topology topology = Topology::uniform(3, link(20, 100));
  EXPECT_EQ(topology.ranks(), 3);
  EXPECT_EQ(topology.hosts(), 3);
  EXPECT_FALSE(topology.same_host(0, 1));
  EXPECT_EQ(topology.port(2), link(20, 100));
  EXPECT_EQ(topology.path(0, 2), link(20, 100));
}

TEST(Topology, PathsAreAsSlowAsTheSlowerEndAndAsFarAsTheFartherOne) {
  const Topology topology({link(20, 100), link(50, 40)});
  EXPECT_EQ(topology.path(0, 1), link(50, 40));
  EXPECT_EQ(topology.path(1, 0), link(50, 40));
}

TEST(Topology, RanksOfAHostShareItsPortAndMeetInside) {
  std::vector<Host> hosts(2);
  hosts[0].rails = {link(30, 100)};
  hosts[0].inside = link(1, 4000);
  hosts[1].rails = {link(30, 100)};
  const Topology topology(hosts, {0, 1, 0});
  EXPECT_EQ(topology.ranks(), 3);
  EXPECT_TRUE(topology.same_host(0, 2));
  EXPECT_EQ(topology.path(0, 2), link(1, 4000));
  EXPECT_EQ(topology.path(0, 1), link(30, 100));
  EXPECT_THAT(topology.ranks_on(0), ElementsAre(0, 2));
  EXPECT_THAT(topology.ranks_on(1), ElementsAre(1));
}

TEST(Topology, RailsAddUpAsFarAsBothHostsHaveThem) {
  std::vector<Host> hosts(3);
  hosts[0].rails = {link(30, 100), link(60, 40)};
  hosts[1].rails = {link(40, 80), link(20, 80)};
  hosts[2].rails = {link(30, 100)};
  const Topology topology(hosts, {0, 1, 2});
  EXPECT_EQ(topology.port(0), link(30, 140));
  EXPECT_EQ(topology.path(0, 1), link(40, 80 + 40));
  EXPECT_EQ(topology.path(0, 2), link(30, 100));
}

TEST(Topology, MeasuredLinksCountInTheirDirection) {
  Topology topology = Topology::uniform(3, link(30, 100));
  const Topology before = topology;
  topology.set_measured(0, 1, link(70, 60));
  EXPECT_EQ(topology.path(0, 1), link(70, 60));
  EXPECT_EQ(topology.path(1, 0), link(30, 100));
  EXPECT_EQ(topology.measured(0, 1), link(70, 60));
  EXPECT_EQ(topology.measured(1, 0), std::nullopt);
  EXPECT_NE(topology, before);
}

TEST(TopologyDeathTest, RefusesRanksOnNoHostAndHostsWithoutRanks) {
  EXPECT_DEATH(Topology({Host{}}, {0, 1}), "host_of");
  EXPECT_DEATH(Topology({Host{}, Host{}}, {0}), "rails");
  EXPECT_DEATH(Topology({Host{.rails = {}}}, {0}), "rails");
}

}  // namespace
}  // namespace gradwire::topology
