#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/launched.h"

/// `gradwire schedule` of pipelines, as the real program.
namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Exit status and output of a call of the command.
struct PipelineOutcome {
  int status;
  std::string out;
  std::string err;
};

PipelineOutcome pipeline_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{gradwire::test::gradwire_program(), "schedule"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  gradwire::test::Launched launched(command);
  const int status = launched.wait();
  return {status, launched.out(), launched.err()};
}

TEST(PipelineCommand, ComparesAllSchedulesOnANetwork) {
  const auto outcome = pipeline_of({"pipeline", "--message", "1220K", "--bandwidth", "1Gb/s"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("1f1b                 1200 ms   20.0 %      7\n"),
                                 HasSubstr("zero_bubble_h1       1150 ms   16.5 %      4\n"),
                                 HasSubstr("zero_bubble          1050 ms    8.6 %      8\n")));
}

TEST(PipelineCommand, VerifiesAndDraws) {
  const auto outcome =
      pipeline_of({"1f1b", "--stages", "2", "--micro-batches", "2", "--verify", "--draw", "text"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("step      180 ms\nbubble    33.3 %\n"),
                    HasSubstr("verified  no deadlock"), HasSubstr("rank 1   ...F0 B0    F1 B1\n")));
}

TEST(PipelineCommand, SearchesWithinTheMemoryOfEachRank) {
  const auto outcome =
      pipeline_of({"search", "--micro-batches", "6", "--compute", "20,20,20ms", "--message",
                   "1200K", "--network", "1gbe", "--kept", "6,5,4,2", "--verify", "--draw", "svg"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("verified  no deadlock"), HasSubstr("<svg "),
                                 HasSubstr("kept      6, 5, 4, 2 micro-batches")));
  const auto wrong = pipeline_of({"search", "--kept", "3,3"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--kept has 2 numbers, but there are 4 stages"));
}

TEST(PipelineCommand, ShowsTheWeightsOfAsynchronousSchedules) {
  const auto outcome = pipeline_of(
      {"pipedream", "--stages", "2", "--micro-batches", "2", "--verify", "--draw", "text"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("step      120 ms\nbubble    0.0 %\n"),
                    HasSubstr("weights have the staleness and copies below"),
                    HasSubstr("weights   stale by 1, 0 updates, in 2, 1 copies, by stage\n"),
                    HasSubstr("B1-1")));
  const auto csv = pipeline_of({"2bw", "--draw", "csv"});
  EXPECT_EQ(csv.status, 2);
  EXPECT_THAT(csv.err, HasSubstr("PyTorch's CSV has no schedules that never drain"));
}

TEST(PipelineCommand, ReadsAndWritesPyTorchsFormat) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "1f1b.csv";
  EXPECT_EQ(pipeline_of({"1f1b", "--draw", "csv", "-o", file}).status, 0);
  const auto read = pipeline_of({"--from", file});
  EXPECT_EQ(read.status, 0) << read.err;
  EXPECT_THAT(read.out, AllOf(HasSubstr("of 4 stages on 4 ranks, 16 micro-batches"),
                              HasSubstr("kept      4, 3, 2, 1 micro-batches")));
  std::ofstream(file) << "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n";
  const auto wrong = pipeline_of({"--from", file});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("gradwire schedule: deadlock: "));
  EXPECT_THAT(wrong.out, Not(HasSubstr("step")));
}

TEST(PipelineCommand, RefusesBadInput) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    const auto outcome = pipeline_of(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refused({"1f1", "--stages", "4"}), HasSubstr("did you mean \"1f1b\"?"));
  EXPECT_THAT(refused({"1f1b", "--compute", "20ms"}), HasSubstr("expected three times"));
  EXPECT_THAT(refused({"1f1b", "--stages", "0"}), HasSubstr("--stages"));
  const auto missing = pipeline_of({"--from", "/nonexistent"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace gradwire::cli
