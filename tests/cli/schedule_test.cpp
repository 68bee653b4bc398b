#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/launched.h"

/// `gradwire schedule`, as the real program.
namespace gradwire {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a call of the command left.
struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome schedule(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{gradwire::testing::gradwire_program(), "schedule"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  gradwire::testing::Launched launched(command);
  const int status = launched.wait();
  return {status, launched.out(), launched.err()};
}

TEST(ScheduleCommand, ListsAlgorithms) {
  const Outcome outcome = schedule({});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* name : {"recursive_doubling", "dissemination", "reduce_scatter"}) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
}

TEST(ScheduleCommand, ShowsWhatARingCosts) {
  const Outcome outcome =
      schedule({"ring", "--ranks", "4", "--bytes", "1M", "--verify", "--draw", "text"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("steps     6\n"), HasSubstr("messages  24\n"),
                                 HasSubstr("sent      1.5 MiB by each rank"), HasSubstr("verified"),
                                 HasSubstr("c0<+0 ")));
}

TEST(ScheduleCommand, SimulatesEveryAlgorithmCorrectly) {
  const std::vector<std::vector<std::string>> calls{
      {"ring"},
      {"direct"},
      {"tree"},
      {"recursive_doubling"},
      {"tree", "--collective", "broadcast", "--root", "2"},
      {"ring", "--collective", "broadcast", "--root", "1"},
      {"ring", "--collective", "all_gather"},
      {"direct", "--collective", "all_gather"},
      {"ring", "--collective", "reduce_scatter"},
      {"direct", "--collective", "reduce_scatter"},
      {"dissemination", "--collective", "barrier"},
  };
  for (std::vector<std::string> call : calls) {
    call.insert(call.end(), {"--simulate", "--ranks", "5", "--bytes", "64K"});
    const Outcome outcome = schedule(call);
    EXPECT_EQ(outcome.status, 0) << call[0] << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("result correct")) << call[0];
  }
}

TEST(ScheduleCommand, DrawsIntoAFile) {
  const gradwire::testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/ring.svg";
  const Outcome outcome = schedule({"ring", "--draw", "svg", "--output", path});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::stringstream svg;
  svg << std::ifstream(path).rdbuf();
  EXPECT_THAT(svg.str(), AllOf(StartsWith("<svg "), EndsWith("</svg>\n")));
}

TEST(ScheduleCommand, LeavesStandardOutputToThePicture) {
  const Outcome outcome = schedule({"ring", "--draw", "svg", "--verify"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("<svg "), EndsWith("</svg>\n")));
  EXPECT_THAT(outcome.err, HasSubstr("verified"));
}

TEST(ScheduleCommand, ExplainsWhatIsWrong) {
  const auto fails = [](const std::vector<std::string>& arguments, const std::string& why) {
    const Outcome outcome = schedule(arguments);
    EXPECT_NE(outcome.status, 0) << arguments[0];
    EXPECT_THAT(outcome.err, HasSubstr(why));
  };
  fails({"rign"}, "did you mean \"ring\"?");
  fails({"ring", "--collective", "allreduce"}, "did you mean \"all_reduce\"?");
  fails({"ring", "--latency", "50"}, "50us");
  fails({"ring", "--bandwidth", "10G"}, "10Gb/s");
  fails({"ring", "--segment", "3"}, "multiple of 4");
  fails({"tree", "--collective", "broadcast", "--root", "4"}, "ranks 0 to 3");
  fails({"ring", "--ranks", "0"}, "--ranks");
  fails({"ring", "--draw", "svg", "--output", "/nonexistent/ring.svg"}, "cannot write");
}

}  // namespace
}  // namespace gradwire
