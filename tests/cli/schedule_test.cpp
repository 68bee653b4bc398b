#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/topology/topology_file.h"
#include "tests/cli/launched.h"

/// `gradwire schedule`, as the real program.
namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Exit status and output of a call of the command.
struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome schedule(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{gradwire::test::gradwire_program(), "schedule"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  gradwire::test::Launched launched(command);
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
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    const std::string name(algorithm.name);
    const std::string collective(name_of(algorithm.collective));
    const Outcome outcome =
        schedule({name, "--collective", collective, "--root", "2", "--target", "4", "--verify",
                  "--simulate", "--ranks", "5", "--bytes", "64K"});
    EXPECT_EQ(outcome.status, 0) << collective << " " << name << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("verified"), HasSubstr("result correct")));
  }
}

TEST(ScheduleCommand, KnowsHostsRailsAndUnequalPorts) {
  const Outcome hosts = schedule({"hierarchical", "-n", "6", "--per-host", "3", "--verify"});
  EXPECT_THAT(hosts.out, AllOf(HasSubstr("over 2 hosts of 10 Gb/s"), HasSubstr("steps     4\n"),
                               HasSubstr("verified")));
  const Outcome slow =
      schedule({"uneven", "--bandwidth", "1Gb/s,1Gb/s,1Gb/s,500Mb/s", "--bytes", "96M"});
  EXPECT_THAT(slow.out, AllOf(HasSubstr("4 hosts of 500 Mb/s to 1 Gb/s"),
                              HasSubstr("sent      96 MiB to 160 MiB by each rank")));
  const Outcome rails = schedule({"ring", "-n", "2", "--bandwidth", "1Gb/s+400Mb/s"});
  EXPECT_THAT(rails.out, HasSubstr("2 hosts of 1.4 Gb/s"));
}

TEST(ScheduleCommand, ComparesTheAlgorithmsOfACollective) {
  const Outcome outcome = schedule({"--compare", "--collective", "gather", "--bytes", "1M"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("gather, 1M over 4 hosts of 10 Gb/s and 50 us\n"),
                                 HasSubstr("\ndirect "), HasSubstr("\nbinomial ")));
}

TEST(ScheduleCommand, ReadsWhatProbeFound) {
  const gradwire::test::TemporaryFolder folder;
  const std::string path = folder / "topology.json";
  topology::Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.hosts.push_back({.name = name,
                             .ranks = 2,
                             .rails = {{.interface = "gw0",
                                        .bytes_per_second = 1.25e8,
                                        .latency = std::chrono::microseconds(20)}}});
  }
  topology::write_cluster(cluster, path);
  const Outcome outcome = schedule({"leaders", "--topology", path, "--verify"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("of 4 ranks"), HasSubstr("over 2 hosts of 1 Gb/s and 20 us")));
  const Outcome wrong = schedule({"leaders", "--topology", path, "--ranks", "3"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("has 4 ranks, not 3"));
}

TEST(ScheduleCommand, DrawsIntoAFile) {
  const gradwire::test::TemporaryFolder folder;
  const std::string path = folder / "ring.svg";
  const Outcome outcome = schedule({"ring", "--draw", "svg", "--output", path});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::stringstream svg;
  svg << std::ifstream(path).rdbuf();
  EXPECT_THAT(svg.str(), AllOf(StartsWith("<svg "), EndsWith("</svg>\n")));
}

TEST(ScheduleCommand, DrawsASimulatedRun) {
  const Outcome outcome =
      schedule({"direct", "-n", "3", "--simulate", "--draw", "text", "--bytes", "12K"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("direct all_reduce of 3 ranks, simulated: "),
                                 HasSubstr("c0<+1"), HasSubstr("c2<2")));
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
  fails({"ring", "--bandwidth", "1Gb/s,2Gb/s"}, "lists 2 rates for 4 hosts");
  fails({"ring", "--bandwidth", "1Gb/s,0Gb/s,1Gb/s,1Gb/s"}, "not a rate above zero");
  fails({"ring", "--topology", "/nonexistent/topology.json"}, "/nonexistent/topology.json");
  fails({"ring", "--segment", "3"}, "multiple of 4");
  fails({"tree", "--collective", "broadcast", "--root", "4"}, "ranks 0 to 3");
  fails({"ring", "--ranks", "0"}, "--ranks");
  fails({"ring", "--draw", "svg", "--output", "/proc/nowhere/ring.svg"}, "cannot be written");
}

}  // namespace
}  // namespace gradwire::cli
