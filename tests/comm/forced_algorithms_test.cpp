#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/comm/tuner.h"

namespace gradwire {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Result<ForcedAlgorithms> parsed(std::string_view text) {
  return parse_forced_algorithms(text, "SOURCE");
}

TEST(ForcedAlgorithms, OneNameForcesEveryCollectiveThatHasIt) {
  const auto forced = parsed("ring").value();
  EXPECT_EQ(forced.at(schedule::Collective::all_reduce), "ring");
  EXPECT_EQ(forced.at(schedule::Collective::broadcast), "ring");
  EXPECT_FALSE(forced.contains(schedule::Collective::barrier));
}

TEST(ForcedAlgorithms, LaterEntriesWin) {
  const auto forced = parsed("ring,all_reduce=direct").value();
  EXPECT_EQ(forced.at(schedule::Collective::all_reduce), "direct");
  EXPECT_EQ(forced.at(schedule::Collective::all_gather), "ring");
}

TEST(ForcedAlgorithms, NothingForcesNothing) {
  EXPECT_TRUE(parsed("").value().empty());
  EXPECT_TRUE(parsed(",").value().empty());
}

TEST(ForcedAlgorithms, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(parsed("rign").error().message,
              AllOf(StartsWith("SOURCE: unknown algorithm"), HasSubstr("did you mean \"ring\""),
                    HasSubstr("recursive_doubling")));
  EXPECT_THAT(parsed("al_reduce=ring").error().message,
              AllOf(HasSubstr("all_reduce"), HasSubstr("broadcast")));
  EXPECT_THAT(parsed("barrier=ring").error().message, HasSubstr("dissemination"));
}

}  // namespace
}  // namespace gradwire
