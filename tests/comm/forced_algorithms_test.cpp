#include "gradwire/comm/forced_algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ForcedAlgorithms, OneNameForcesEveryCollectiveThatHasIt) {
  const auto forced = parse_forced_algorithms("ring").value();
  EXPECT_EQ(forced.at(Collective::all_reduce), "ring");
  EXPECT_EQ(forced.at(Collective::broadcast), "ring");
  EXPECT_FALSE(forced.contains(Collective::barrier));
}

TEST(ForcedAlgorithms, LaterEntriesWin) {
  const auto forced = parse_forced_algorithms("ring,all_reduce=direct").value();
  EXPECT_EQ(forced.at(Collective::all_reduce), "direct");
  EXPECT_EQ(forced.at(Collective::all_gather), "ring");
}

TEST(ForcedAlgorithms, NothingForcesNothing) {
  EXPECT_TRUE(parse_forced_algorithms("").value().empty());
  EXPECT_TRUE(parse_forced_algorithms(",").value().empty());
}

TEST(ForcedAlgorithms, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(parse_forced_algorithms("rign").error().message,
              AllOf(HasSubstr("GRADWIRE_ALGORITHM"), HasSubstr("did you mean \"ring\""),
                    HasSubstr("recursive_doubling")));
  EXPECT_THAT(parse_forced_algorithms("al_reduce=ring").error().message,
              AllOf(HasSubstr("all_reduce"), HasSubstr("broadcast")));
  EXPECT_THAT(parse_forced_algorithms("barrier=ring").error().message, HasSubstr("dissemination"));
}

}  // namespace
}  // namespace gradwire
