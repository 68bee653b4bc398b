#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/link_model.h"
#include "tests/schedule/textbook_links.h"

namespace gradwire::schedule {
namespace {

constexpr std::size_t kBytes = 100'000'000;

double estimate(Collective collective, const char* algorithm, const topology::Topology& topology,
                const IncastCosts& incast) {
  const ScheduleCost cost(make_schedule({collective}, algorithm, topology).value());
  const ChunkLayout layout(cost.programs().schedule().chunks, kBytes, 1);
  return static_cast<double>(cost.estimate(topology, layout, {.incast = incast}).total.count());
}

/// How much longer a collective takes because of incast.
double factor(const char* algorithm, const topology::Topology& topology,
              Collective collective = Collective::all_reduce) {
  constexpr IncastCosts kCosts{.direct = 0.01, .forwarding = 0.1, .inside = 0.02};
  return estimate(collective, algorithm, topology, kCosts) /
         estimate(collective, algorithm, topology, {});
}

double factor(const char* algorithm, int ranks) {
  return factor(algorithm, test::links(ranks));
}

TEST(Incast, SlowsRanksToWhichSeveralSend) {
  EXPECT_EQ(factor("ring", 8), 1);
  EXPECT_EQ(factor("direct", 3), 1);
  EXPECT_NEAR(factor("direct", 4), 1.01, 1e-3);
  EXPECT_NEAR(factor("uneven", 4), 1.01, 1e-3);
  EXPECT_NEAR(factor("direct", 8), 1.05, 1e-3);
}

TEST(Incast, GrowsUpToEightStreams) {
  EXPECT_NEAR(factor("direct", 9), 1.06, 1e-3);
  EXPECT_NEAR(factor("direct", 40), 1.06, 1e-3);
}

TEST(Incast, SparesButterfliesWhosePartnersSendInTurn) {
  EXPECT_EQ(factor("recursive_doubling", 8), 1);
  EXPECT_EQ(factor("halving_doubling", 16), 1);
}

TEST(Incast, AppliesToReceiversOnly) {
  EXPECT_NEAR(factor("direct", test::links(8), Collective::gather), 1.05, 1e-3);
  EXPECT_EQ(factor("direct", test::links(8), Collective::scatter), 1);
}

TEST(Incast, CostsMoreWhereDataIsForwarded) {
  for (const int ranks : {4, 8}) EXPECT_GT(factor("double_tree", ranks), 1.05);
}

TEST(Incast, OfPortsWithSpareTimeCostsLittle) {
  std::vector<topology::Link> ports(4, {.bytes_per_second = 1e8});
  ports[3].bytes_per_second = 2.5e7;  // It hears from two, and the others wait for it.
  EXPECT_LT(factor("spanning_trees", topology::Topology(ports)), 1.05);
}

TEST(Incast, InsideAHostIsOneShare) {
  EXPECT_NEAR(factor("direct", topology::Topology({topology::Host{}}, {0, 0, 0, 0, 0, 0, 0, 0})),
              1.02, 1e-3);
}

}  // namespace
}  // namespace gradwire::schedule
