#include "gradwire/schedule/cost/incast.h"

#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

ProgramSet all_reduce(const char* algorithm, int ranks) {
  const CollectiveSpec spec{.collective = Collective::all_reduce};
  return ProgramSet(make_schedule(spec, algorithm, Topology::uniform(ranks, Link{})).value());
}

bool all(Rank /*receiver*/, Rank /*sender*/) {
  return true;
}

TEST(MaxFanIn, CountsTheRanksOfAStar) {
  EXPECT_EQ(max_fan_in(all_reduce("star", 8), all), 7u);
}

TEST(MaxFanIn, IsZeroInARingAndInAButterfly) {
  EXPECT_EQ(max_fan_in(all_reduce("ring", 8), all), 0u);
  EXPECT_EQ(max_fan_in(all_reduce("recursive_doubling", 8), all), 0u);
}

TEST(MaxFanIn, CountsTheGivenPairsOnly) {
  const auto from_the_upper_half = [](Rank, Rank sender) { return sender >= 4; };
  EXPECT_EQ(max_fan_in(all_reduce("star", 8), from_the_upper_half), 4u);
  const auto from_the_last = [](Rank, Rank sender) { return sender == 7; };
  EXPECT_EQ(max_fan_in(all_reduce("star", 8), from_the_last), 0u);
}

double factor(const char* algorithm, int ranks) {
  const CollectiveSpec spec{.collective = Collective::all_reduce};
  const Topology topology = Topology::uniform(ranks, Link{});
  return incast_factor(ScheduleCost(make_schedule(spec, algorithm, topology).value()), topology);
}

TEST(IncastFactor, GrowsWithTheFanIn) {
  EXPECT_EQ(factor("ring", 8), 1);
  EXPECT_EQ(factor("direct", 3), 1);
  EXPECT_LT(factor("direct", 4), 1.01);
  EXPECT_LT(factor("uneven", 4), 1.01);
  EXPECT_GT(factor("direct", 8), 1.05);
  EXPECT_EQ(factor("direct", 100), factor("direct", 9));
}

TEST(IncastFactor, AppliesToTheBusiestPortsOnly) {
  const CollectiveSpec spec{.collective = Collective::all_reduce};
  const auto on = [&](double last) {
    const Topology topology({{.bytes_per_second = 1e8},
                             {.bytes_per_second = 1e8},
                             {.bytes_per_second = 1e8},
                             {.bytes_per_second = last}});
    return incast_factor(ScheduleCost(make_schedule(spec, "spanning_trees", topology).value()),
                         topology);
  };
  EXPECT_EQ(on(5e7), 1);  // The slow host receives from two, and the others have spare time.
}

TEST(IncastFactor, IsLargerWhereDataIsForwarded) {
  for (const int ranks : {4, 8}) EXPECT_GT(factor("double_tree", ranks), 1.05);
}

}  // namespace
}  // namespace gradwire
