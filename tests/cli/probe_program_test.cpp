#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gradwire/topology/topology_file.h"
#include "tests/cli/launched.h"

/// `gradwire probe` and `gradwire doctor`, as the real program, on this machine only.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("gradwire-probe-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }

  /// A program in place of ssh.
  std::string script(const std::string& text) const {
    const auto file = path / "rsh";
    std::ofstream(file) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file.string();
  }
};

TEST(ProbeProgramTest, MeasuresTheInsideOfThisHost) {
  const Folder folder;
  const std::string file = (folder.path / "topology.json").string();
  Launched probe({gradwire_program(), "probe", "-n", "3", "--seconds", "0.05", "--output", file});
  ASSERT_EQ(probe.wait(), 0) << probe.err();
  const auto cluster = topology::read_cluster(file);
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_EQ(cluster->hosts.size(), 1u);
  EXPECT_EQ(cluster->hosts[0].ranks, 3);
  ASSERT_TRUE(cluster->hosts[0].inside);
  EXPECT_GT(cluster->hosts[0].inside->bytes_per_second, 1e6);
  EXPECT_EQ(topology_of(*cluster).ranks(), 3);
  EXPECT_THAT(probe.out(), HasSubstr(cluster->hosts[0].name));
}

TEST(TuneProgramTest, AddsTheFastestToTheFileAndJobsGoByIt) {
  const Folder folder;
  const std::string file = (folder.path / "topology.json").string();
  Launched untold({gradwire_program(), "tune", "-n", "2", "--topology", file});
  EXPECT_EQ(untold.wait(), 1);
  EXPECT_THAT(untold.err(), HasSubstr("cannot read " + file));
  Launched probe({gradwire_program(), "probe", "-n", "2", "--seconds", "0.05", "--output", file});
  ASSERT_EQ(probe.wait(), 0) << probe.err();
  for (int again = 0; again < 2; ++again) {
    Launched tune({gradwire_program(), "tune", "-n", "2", "--topology", file, "--seconds", "0.02",
                   "--collectives", "all_reduce,broadcast", "--sizes", "1K,1M"});
    ASSERT_EQ(tune.wait(), 0) << tune.err();
    EXPECT_THAT(tune.out(), HasSubstr("written to " + file));
  }
  const auto cluster = topology::read_cluster(file);
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_EQ(cluster->choices.size(), 4u);
  EXPECT_EQ(cluster->choices[0].bytes, 1024u);
  EXPECT_EQ(cluster->choices[0].ranks, 2);
  // Whether another number of segments is clearly faster depends on the machine.
  for (const topology::MeasuredChoice& choice : cluster->choices) {
    EXPECT_THAT(choice.segments, AnyOf(0, 8, 32));
    EXPECT_TRUE(choice.bytes > 1024 || choice.segments == 0);
  }
  Launched bench({gradwire_program(), "bench", "all_reduce", "-n", "2", "--sizes", "1K,1M",
                  "--iterations", "5", "--explain", "--env", "GRADWIRE_TOPOLOGY=" + file});
  ASSERT_EQ(bench.wait(), 0) << bench.err();
  EXPECT_THAT(bench.out(), HasSubstr("(measured by gradwire tune)"));
}

TEST(ProbeProgramTest, UnwritableOutputIsAnError) {
  Launched probe({gradwire_program(), "probe", "-n", "2", "--seconds", "0.02", "--output",
                  "/dev/null/topology.json"});
  EXPECT_EQ(probe.wait(), 1);
  EXPECT_THAT(probe.err(), HasSubstr("/dev/null/topology.json cannot be written: Not a directory"));
}

TEST(DoctorProgramTest, ARemoteShellThatFailsIsAFinding) {
  const Folder folder;
  const std::string rsh = folder.script("echo \"nobody answers at $1\" >&2; exit 9");
  Launched failing({gradwire_program(), "doctor", "--hosts", "elsewhere.invalid", "--rsh", rsh});
  EXPECT_EQ(failing.wait(), 1);
  EXPECT_THAT(failing.out(), AllOf(HasSubstr("failed with status 9: nobody answers at elsewhere"),
                                   HasSubstr("fix: the remote shell must work")));
  Launched missing(
      {gradwire_program(), "doctor", "--hosts", "elsewhere.invalid", "--rsh", "/no/such/shell"});
  EXPECT_EQ(missing.wait(), 1);
  EXPECT_THAT(missing.out(),
              AllOf(HasSubstr("ERROR: elsewhere.invalid: cannot start /no/such/shell"),
                    HasSubstr("fix: name a remote shell"), HasSubstr("1 problem found.")));
}

TEST(DoctorProgramTest, ARemoteShellThatRunsNothingIsAFinding) {
  const Folder folder;
  const std::string rsh = folder.script("shift; exec \"$@\" </dev/null");
  Launched doctor({gradwire_program(), "doctor", "--hosts", "elsewhere.invalid", "--rsh", rsh});
  EXPECT_EQ(doctor.wait(), 1);
  EXPECT_THAT(doctor.out(), AllOf(HasSubstr("elsewhere.invalid sh\" ran nothing"),
                                  HasSubstr("forward its standard input")));
}

TEST(DoctorProgramTest, ALibraryThatAHostLacksIsAFinding) {
  const Folder folder;
  std::ofstream(folder.path / "libxxhash.so.0") << "no library";
  const std::string rsh =
      folder.script("shift; LD_LIBRARY_PATH=" + folder.path.string() + " exec \"$@\"");
  Launched doctor({gradwire_program(), "doctor", "--hosts", "elsewhere.invalid", "--rsh", rsh});
  EXPECT_EQ(doctor.wait(), 1);
  EXPECT_THAT(doctor.out(), AllOf(HasSubstr("cannot be run there: "), HasSubstr("libxxhash.so.0"),
                                  HasSubstr("a library that it is linked with is missing")));
}

TEST(DoctorProgramTest, RanksOfOneHostHaveNothingWrongBetweenThem) {
  Launched doctor(
      {gradwire_program(), "run", "-n", "2", "--no-prefix", "--", gradwire_program(), "doctor"});
  doctor.wait();
  EXPECT_THAT(doctor.out(), AllOf(HasSubstr("rank 0 ("), HasSubstr("rank 1 (")));
  for (const char* never :
       {"cannot reach", "are lost", "loopback", "different builds of gradwire"}) {
    EXPECT_THAT(doctor.out(), Not(HasSubstr(never)));
  }
}

TEST(DoctorProgramTest, ADoctorThatIsEndedLeavesNothingBehind) {
  const Folder folder;
  const std::string started = (folder.path / "started").string();
  const std::string rsh = folder.script("echo >" + started + "; exec sleep 1000");
  Launched doctor({gradwire_program(), "doctor", "--hosts", "elsewhere.invalid", "--rsh", rsh});
  while (!std::filesystem::exists(started)) std::this_thread::yield();
  doctor.send_signal(SIGTERM);
  EXPECT_EQ(doctor.wait(), 128 + SIGTERM);
  EXPECT_TRUE(doctor.all_gone(10'000));
}

}  // namespace
}  // namespace gradwire::test
