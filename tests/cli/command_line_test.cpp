#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/launched.h"

/// Behavior common to all commands: wrong command lines, output that cannot be written, jobs in
/// jobs.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Runs the program under test with these words, through a shell.
Outcome shell(const std::string& words) {
  Launched launched({"sh", "-c", gradwire_program() + " " + words});
  const int status = launched.wait();
  return {status, launched.out(), launched.err()};
}

class UnwritableOutput : public ::testing::TestWithParam<const char*> {};

TEST_P(UnwritableOutput, IsAnErrorThatSaysSo) {
  const Outcome outcome = shell(std::string(GetParam()) + " >/dev/full");
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("SIGPIPE")));
}

INSTANTIATE_TEST_SUITE_P(
    Commands, UnwritableOutput,
    ::testing::Values("--version", "--help", "bench --help", "env", "schedule", "schedule ring",
                      "schedule --compare", "plan --nodes 2", "plan --json -",
                      "plan simulate --collective all_reduce --bytes 64M --nodes 4",
                      "bench codec none --size 4K --seconds 0.001 --json -",
                      "bench barrier --iterations 5", "bench barrier -n 2 --iterations 5 --json -",
                      "run -n 2 -- echo hello", "run -n 2 -- yes"));

TEST(UsageError, HasStatusTwoAndNamesTheCommand) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"bench all_redcue -n 2", "gradwire bench: unknown collective \"all_redcue\""},
      {"bench --sizes 4X -n 2", "gradwire bench: \"4X\" is not a number of bytes"},
      {"bench --limit 10G -n 2", "gradwire bench: \"10G\" is not a rate"},
      {"bench --algorithm rng -n 2", "gradwire bench: "},
      {"bench -n 0", "gradwire bench: --ranks: "},
      {"bench --port 99999", "gradwire bench: --port: "},
      {"bench --seconds abc", "gradwire bench: "},
      {"bench --hosts a:x", "gradwire bench: --hosts a:x: "},
      {"bench --bogus", "gradwire bench: unknown option --bogus"},
      {"bench --host a,b", "gradwire bench: unknown option --host; did you mean --hosts?"},
      {"bench --nproc 4", "gradwire bench: unknown option --nproc; did you mean -n?"},
      {"bench --hosts a b c", "gradwire bench: unexpected argument c; hosts are one argument: "},
      {"run -H a,b -- true", "gradwire run: unknown option -H; did you mean --hosts?"},
      {"run --grase 3 true", "gradwire run: unknown option --grase; did you mean --grace?"},
      {"bench --compare slurm -n 2", "gradwire bench: unknown system"},
      {"bench --compare mpi", "gradwire bench: --compare starts the ranks itself"},
      {"bench step --codec int9 -n 2 --compute-ms 1", "gradwire bench"},
      {"bench step --limit fast -n 2 --compute-ms 1", "gradwire bench"},
      {"bench codec int9", "gradwire bench"},
      {"bench codec --size 4X", "gradwire bench"},
      {"schedule rng", "gradwire schedule: "},
      {"schedule ring --bytes 4X", "gradwire schedule: "},
      {"schedule ring --bandwidth fast", "gradwire schedule: "},
      {"plan --model resnt50", "gradwire plan: "},
      {"plan --network 10Gx", "gradwire plan: "},
      {"plan simulate --network 10Gx", "gradwire plan"},
      {"probe", "gradwire probe: "},
      {"probe --hostfile /nowhere", "gradwire probe: --hostfile /nowhere: cannot read"},
      {"tune -n 2 --collectives all_redcue", "gradwire tune: unknown collective"},
      {"doctor --hosts a:x", "gradwire doctor: --hosts a:x: "},
      {"report", "gradwire report: "},
      {"report /nowhere", "gradwire report: "},
      {"checkpoint", "gradwire checkpoint: "},
      {"run --env 1x=2 -n 2 true", "gradwire run: --env 1x=2"},
      {"bnech", "gradwire: unknown command"},
  };
  for (const auto& [words, said] : cases) {
    const Outcome outcome = shell(words);
    EXPECT_EQ(outcome.status, 2) << words << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith(said)) << words;
    EXPECT_EQ(outcome.out, "") << words;
  }
}

TEST(CommandLine, TheUsualSpellingOfARateIsTaken) {
  const Outcome outcome = shell("bench barrier -n 2 --iterations 2 --limit 10Gbps");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(shell("plan --network 10Gbps").status, 0);
}

TEST(CommandLine, WordsAfterAVariableAreTheProgram) {
  const Outcome named = shell("run -n 1 --no-prefix --env HOME echo started");
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(named.out, "started\n");
  const Outcome given = shell("run -n 1 --no-prefix --env A=1 --env B=2 sh -c 'echo $A$B'");
  EXPECT_EQ(given.status, 0) << given.err;
  EXPECT_EQ(given.out, "12\n");
}

/// Variables of a job of one rank are left over, or those of Slurm's interactive shells.
TEST(CommandLine, AJobOfOneRankStartsOthers) {
  const std::string slurm =
      "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_ID=4294967290 "
      "SLURM_STEP_NUM_TASKS=1 SLURM_JOB_NODELIST=x SLURM_STEP_NODELIST=x ";
  for (const std::string& variables : {slurm, std::string("RANK=0 WORLD_SIZE=1 ")}) {
    const std::string bench = gradwire_program() + " bench barrier --iterations 2 -n ";
    Launched two({"sh", "-c", variables + bench + "2"});
    EXPECT_EQ(two.wait(), 0) << two.err();
    EXPECT_THAT(two.out(), HasSubstr("2 ranks"));
    Launched one({"sh", "-c", variables + bench + "1"});
    EXPECT_EQ(one.wait(), 0) << one.err();
  }
}

TEST(CommandLine, RanksStartNoRanks) {
  for (const char* what : {"bench barrier -n 4", "bench barrier --hosts a,b,c", "probe -n 4",
                           "tune -n 4", "bench step --profile uniform:2x4K --compute-ms 1 -n 4"}) {
    const Outcome outcome = shell("run -n 2 -- " + gradwire_program() + " " + what);
    EXPECT_EQ(outcome.status, 2) << what << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("of a job of 2 ranks (started by gradwire)")) << what;
  }
  const Outcome same =
      shell("run -n 2 -- " + gradwire_program() + " bench barrier -n 2 --iterations 2");
  EXPECT_EQ(same.status, 0) << same.err;
}

TEST(CommandLine, TooMuchMemoryIsNamed) {
  const Outcome outcome = shell("bench all_reduce -n 2 --sizes 999999G --iterations 1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot allocate a buffer of "), HasSubstr("GiB"),
                                 HasSubstr("all_reduce of"), Not(HasSubstr("std::"))));
}

TEST(CommandLine, AFolderIsNoFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  for (const std::string& words :
       {"schedule ring --topology " + path, "tune -n 2 --topology " + path,
        "plan --network " + path,
        "plan simulate --compute-ms 1 --codec int8 --codec-speeds " + path,
        "bench step --compute-ms 1 -n 2 --profile " + path, "report x=" + path}) {
    const Outcome outcome = shell(words);
    EXPECT_NE(outcome.status, 0) << words;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(path), Not(HasSubstr("basic_filebuf")))) << words;
  }
}

TEST(CommandLine, AMissingTopologyNamesWhatMakesOne) {
  const Outcome outcome = shell("tune -n 2 --topology /nofile");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot read /nofile: No such file or directory"),
                                 HasSubstr("gradwire probe")));
}

TEST(CommandLine, AVariableSetToNothingIsNotSet) {
  for (const char* name : {"GRADWIRE_PORT", "GRADWIRE_ENCRYPTION", "GRADWIRE_SHARED_MEMORY"}) {
    const Outcome outcome =
        run_gradwire({"bench", "barrier", "-n", "2", "--iterations", "2"}, {{name, ""}});
    EXPECT_EQ(outcome.status, 0) << name << outcome.err;
  }
}

TEST(CommandLine, ThePythonBesideTheBuildFolderIsFound) {
  const TemporaryFolder folder;
  const std::string python = folder / ".venv/bin/python";
  std::filesystem::create_directories(folder / ".venv/bin");
  folder.write(".venv/bin/python", "#!/bin/sh\nexit 1\n", 0755);
  const std::string program = copy_program(folder / "build");
  Launched bench({"env", "-u", "GRADWIRE_PYTHON", program, "bench", "barrier", "-n", "2",
                  "--iterations", "2", "--rounds", "1", "--compare", "gloo"});
  EXPECT_EQ(bench.wait(), 0) << bench.err();
  EXPECT_THAT(bench.err(), HasSubstr("gloo is skipped: " + python + " has no PyTorch with Gloo"));
}

}  // namespace
}  // namespace gradwire::test
