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

TEST(Crowding, CostsNothingForTwoAndMoreTheMoreThereAre) {
  EXPECT_EQ(crowding_of(0), 1);
  EXPECT_EQ(crowding_of(2), 1);
  EXPECT_LT(crowding_of(3), 1.01);
  EXPECT_GT(crowding_of(7), 1.05);
  EXPECT_EQ(crowding_of(100), crowding_of(8));
}

}  // namespace
}  // namespace gradwire
