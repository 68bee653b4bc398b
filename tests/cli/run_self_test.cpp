#include <gmock/gmock.h>

#include "tests/cli/launched.h"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;

TEST(RunSelfTest, RankZeroWritesAsIfAlone) {
  Launched runner({GRADWIRE_SELF_RUNNER});
  EXPECT_EQ(runner.wait(), 0);
  EXPECT_THAT(sorted_lines(runner.out()),
              ElementsAre("[1] rank 1 of 3", "[2] rank 2 of 3", "rank 0 of 3"));
  EXPECT_THAT(sorted_lines(runner.err()), ElementsAre("[1] error 1", "[2] error 2", "error 0"));
  EXPECT_TRUE(runner.all_gone());
}

}  // namespace
}  // namespace gradwire::test
