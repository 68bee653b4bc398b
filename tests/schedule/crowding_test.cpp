#include "gradwire/schedule/crowding.h"

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

TEST(SendersThatMeet, AreThoseOfAStarsCentre) {
  EXPECT_EQ(senders_that_meet(all_reduce("star", 8), all), 7u);
}

TEST(SendersThatMeet, AreNoneInARingNorInAButterfly) {
  EXPECT_EQ(senders_that_meet(all_reduce("ring", 8), all), 0u);
  EXPECT_EQ(senders_that_meet(all_reduce("recursive_doubling", 8), all), 0u);
}

TEST(SendersThatMeet, AreOnlyThoseThatCount) {
  const auto from_the_upper_half = [](Rank, Rank sender) { return sender >= 4; };
  EXPECT_EQ(senders_that_meet(all_reduce("star", 8), from_the_upper_half), 4u);
  const auto from_the_last = [](Rank, Rank sender) { return sender == 7; };
  EXPECT_EQ(senders_that_meet(all_reduce("star", 8), from_the_last), 0u);
}

TEST(Crowding, CostsNothingInARingAndMoreTheMoreTheyAre) {
  EXPECT_EQ(crowding(all_reduce("ring", 8), all), 1);
  EXPECT_EQ(crowding(all_reduce("direct", 3), all), 1);
  EXPECT_LT(crowding(all_reduce("direct", 4), all), 1.01);
  EXPECT_GT(crowding(all_reduce("direct", 8), all), 1.05);
  EXPECT_EQ(crowding(all_reduce("direct", 100), all), crowding(all_reduce("direct", 9), all));
}

TEST(Crowding, CostsMoreWhereSomeAreAhead) {
  EXPECT_GT(crowding(all_reduce("double_tree", 8), all), 1.05);
}

}  // namespace
}  // namespace gradwire
