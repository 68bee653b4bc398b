#include "gradwire/cli/launch/rank_process.h"

#include <array>
#include <csignal>
#include <stdexcept>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/remote_script.h"

namespace gradwire::test {
namespace {

/// A rank's process that has exited before its output is read.
class RankProcessTest : public ::testing::Test {
 protected:
  RankProcessTest() {
    std::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
    sink_ = cli::OutputSink(writer_.get());
  }

  /// Starts it and waits for its end without a notification.
  cli::ExitStatus start(cli::RankProcess& rank, const cli::LaunchOptions& options) {
    value_or_throw(rank.start(options));
    int status = 0;
    ::waitpid(rank.pid(), &status, 0);
    return cli::ExitStatus::from_wait(status);
  }

  /// A rank on another host, where `script` runs in its place.
  cli::RankProcess remote(const std::string& script, cli::LaunchOptions& options) {
    options.program = {"true"};
    options.rsh = {"sh", "-c", script};
    return cli::RankProcess({.place = {}, .host = {.name = "a"}, .remote = true, .variables = {}},
                            kRun, sink_, sink_);
  }

  void stop_reading() {
    reader_.close();
    sink_.append("unread");
    sink_.write_some();
    ASSERT_TRUE(sink_.broken());
  }

  const std::string kRun = "ab12";
  const std::string kReady = "echo " + cli::ready_line(kRun) + " 4711";
  UniqueFd reader_, writer_;
  cli::OutputSink sink_{-1};
};

TEST_F(RankProcessTest, ItsLastOutputIsDroppedIfNobodyReadsAnyMore) {
  cli::LaunchOptions options;
  options.program = {"sh", "-c", "echo last; printf words"};
  cli::RankProcess rank({.place = {}, .host = {}, .remote = false, .variables = {}}, kRun, sink_,
                        sink_);
  rank.set_ended(start(rank, options));
  stop_reading();
  EXPECT_TRUE(rank.finish_output());
  EXPECT_TRUE(sink_.empty());
}

TEST_F(RankProcessTest, ASinkThatNobodyReadsStaysEmpty) {
  stop_reading();
  sink_.buffer() += "more";
  sink_.write_some();
  EXPECT_TRUE(sink_.empty());
}

TEST_F(RankProcessTest, ARemoteShellThatEndedWellAndRanNothingIsAFailure) {
  cli::LaunchOptions options;
  cli::RankProcess rank = remote("echo Welcome", options);
  rank.set_ended(start(rank, options));
  EXPECT_TRUE(rank.ran_nothing());
  EXPECT_EQ(rank.exit_status()->status, 127);
}

TEST_F(RankProcessTest, ARemoteRankThatRanIsKnownByItsLastOutput) {
  cli::LaunchOptions options;
  cli::RankProcess rank = remote("echo Welcome; " + kReady, options);
  rank.set_ended(start(rank, options));
  EXPECT_FALSE(rank.never_ran());
  EXPECT_FALSE(rank.ran_nothing());
  EXPECT_EQ(rank.exit_status()->status, 0);
}

TEST_F(RankProcessTest, WithUnreadOutputMayHaveRun) {
  cli::LaunchOptions options;
  cli::RankProcess rank = remote(kReady, options);
  const cli::ExitStatus exit_status = start(rank, options);
  stop_reading();
  rank.transfer();
  rank.set_ended(exit_status);
  EXPECT_FALSE(rank.ran_nothing());
  EXPECT_EQ(rank.exit_status()->status, 0);
}

}  // namespace
}  // namespace gradwire::test
