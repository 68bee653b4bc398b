#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/cli/bench/peers.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLong = std::chrono::minutes(1);

TEST(RunCaptured, KeepsBothStreamsApartAndTheStatus) {
  const auto ended = cli::run_captured({"sh", "-c", "echo out; echo err >&2; exit 7"}, kLong);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status, 7);
  EXPECT_EQ(ended->out, "out\n");
  EXPECT_EQ(ended->err, "err\n");
}

TEST(RunCaptured, TakesMoreThanAPipeHolds) {
  const auto ended = cli::run_captured({"sh", "-c", "head -c 300000 /dev/zero; kill -9 $$"}, kLong);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->out.size(), 300000u);
  EXPECT_EQ(ended->status, 128 + 9);
}

TEST(RunCaptured, KillsAtTheLimitWhatTheCommandStarted) {
  const auto ended =
      cli::run_captured({"sh", "-c", "sleep 1000 & sleep 1000"}, std::chrono::milliseconds(50));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().kind, ErrorKind::timeout);
  EXPECT_THAT(ended.error().message, HasSubstr("sh did not end within 50 ms"));
}

TEST(RunCaptured, NamesWhatCannotBeStarted) {
  const auto ended = cli::run_captured({"no-such-program"}, kLong);
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("no-such-program"));
}

}  // namespace
}  // namespace gradwire::test
