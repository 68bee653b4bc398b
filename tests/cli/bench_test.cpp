#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "tests/cli/launched.h"

/// `gradwire bench`, as the real program.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Outcome bench(const std::vector<std::string>& arguments,
              const std::map<std::string, std::string>& variables = {}) {
  std::vector<std::string> command{"bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_gradwire(command, variables);
}

nlohmann::json rows_in(const std::string& text) {
  return nlohmann::json::parse(text)["rows"];
}

class EveryCollective : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryCollective, IsRightOnThreeRanks) {
  const Outcome outcome =
      bench({GetParam(), "-n", "3", "--sizes", "4,1000,300K", "--iterations", "3", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = rows_in(outcome.out);
  ASSERT_EQ(rows.size(), std::string(GetParam()) == "barrier" ? 1u : 3u);
  for (const auto& row : rows) {
    EXPECT_EQ(row["collective"], GetParam());
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["iterations"], 3);
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_GT(row["median_us"], 0);
    EXPECT_GE(row["p99_us"], row["median_us"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Bench, EveryCollective,
                         ::testing::Values("all_reduce", "all_gather", "reduce_scatter",
                                           "broadcast", "reduce", "gather", "scatter", "all_to_all",
                                           "barrier", "point_to_point"));

TEST(Bench, OneRankAloneWorksToo) {
  for (const char* collective : {"all_reduce", "all_to_all", "gather", "point_to_point"}) {
    const Outcome outcome = bench({collective, "-n", "1", "--sizes", "64", "--iterations", "2"});
    EXPECT_EQ(outcome.status, 0) << collective << outcome.err;
  }
}

TEST(Bench, PartsAreWholeAndNotEmpty) {
  const Outcome outcome =
      bench({"all_gather", "-n", "3", "--sizes", "4,100", "--iterations", "2", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = rows_in(outcome.out);
  EXPECT_EQ(rows[0]["bytes"], 12);
  EXPECT_EQ(rows[1]["bytes"], 96);
}

TEST(Bench, WritesATableRowsAndAPlot) {
  const TemporaryFolder folder;
  const std::string json = folder / "rows.json", plot = folder / "plot.svg";
  const Outcome outcome = bench({"-n", "2", "--sizes", "64,4K", "--iterations", "5", "--algorithm",
                                 "ring", "--json", json, "--plot", plot, "--limit", "10Gb/s"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("# 2 ranks"), HasSubstr("4096"), HasSubstr(" ring "),
                                 HasSubstr("busbw"), HasSubstr("%"), HasSubstr("cpu")));
  const auto rows = rows_in(content_of(json));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["algorithm"], "ring");
  EXPECT_EQ(rows[1]["system"], "gradwire");
  // With 2 ranks, 2(P-1)/P is 1.
  EXPECT_EQ(rows[1]["busbw_gbps"], rows[1]["algbw_gbps"]);
  EXPECT_THAT(content_of(plot), AllOf(StartsWith("<svg "), EndsWith("</svg>\n"),
                                      HasSubstr("all_reduce on 2 ranks"), HasSubstr("10 Gb/s")));
}

TEST(Bench, ExplainsWhatTheTunerExpects) {
  const Outcome outcome =
      bench({"broadcast", "-n", "2", "--sizes", "4K", "--iterations", "2", "--explain"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("# the tuner uses assumed links"),
                                 HasSubstr("# broadcast 4 KiB: the tuner estimates\n"),
                                 ContainsRegex("#   ring .* us: 1 step, a rank sends 4 KiB\n")));
}

TEST(Bench, SaysThatAMessageHasOneWayOnly) {
  const Outcome outcome =
      bench({"point_to_point", "-n", "3", "--sizes", "1M", "--iterations", "2", "--explain"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("# point_to_point 1 MiB: there is no choice of algorithm"),
                    ContainsRegex("#   point_to_point .* [mu]s: 1 step, a rank sends 1 MiB\n")));
}

TEST(Bench, ExplainsBesideJsonToo) {
  const Outcome outcome = bench({"-n", "2", "--sizes", "4,4K", "--iterations", "2", "--explain",
                                 "--json", "-", "--algorithm", "ring,tree"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(rows_in(outcome.out).size(), 4u);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("# all_reduce 4 B: the tuner estimates\n"),
                    HasSubstr("# all_reduce 4 KiB: the tuner estimates\n"),
                    HasSubstr("# the tuner does not choose: --algorithm says ring, tree\n")));
}

TEST(Bench, SaysThatTheEnvironmentChooses) {
  const std::vector<std::string> arguments{"broadcast", "-n",           "2", "--sizes",
                                           "4K",        "--iterations", "2", "--explain"};
  const auto explained = [&](const std::string& forced) {
    return bench(arguments, {{"GRADWIRE_ALGORITHM", forced}}).out;
  };
  EXPECT_THAT(explained("all_reduce=ring,broadcast=tree"),
              HasSubstr("# the tuner does not choose: GRADWIRE_ALGORITHM says tree\n"));
  EXPECT_THAT(explained("all_reduce=ring"),
              AllOf(HasSubstr("the tuner estimates"), Not(HasSubstr("does not choose"))));
}

TEST(Bench, TheEnvironmentsAlgorithmIsUsedAndNamed) {
  const Outcome outcome = bench({"-n", "2", "--sizes", "4,4K", "--iterations", "2", "--json", "-"},
                                {{"GRADWIRE_ALGORITHM", "tree"}});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const auto& row : rows_in(outcome.out)) EXPECT_EQ(row["algorithm"], "tree");
}

TEST(Bench, MeasuresEveryAlgorithmInTurn) {
  const TemporaryFolder folder;
  const std::string plot = folder / "plot.svg";
  const Outcome outcome = bench({"broadcast", "-n", "3", "--sizes", "4,4K", "--iterations", "2",
                                 "--algorithm", "all", "--json", "-", "--plot", plot});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> measured;
  for (const auto& row : rows_in(outcome.out)) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["system"], row["algorithm"]);
    measured.push_back(row["algorithm"]);
  }
  EXPECT_THAT(measured, AllOf(Contains("ring").Times(2), Contains("tree").Times(2)));
  EXPECT_EQ(measured.front(), measured[measured.size() / 2]);
  EXPECT_THAT(content_of(plot), AllOf(HasSubstr(">ring<"), HasSubstr(">tree<")));
}

TEST(Bench, RefusesWhatDoesNotExistBeforeAnyRankStarts) {
  const auto refuses = [](const std::vector<std::string>& arguments, const std::string& why,
                          const std::map<std::string, std::string>& variables = {}) {
    const Outcome outcome = bench(arguments, variables);
    EXPECT_NE(outcome.status, 0) << arguments[0];
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(why), Not(HasSubstr("stopped"))));
    EXPECT_EQ(outcome.out, "");
  };
  refuses({"allreduce", "-n", "2"}, "did you mean \"all_reduce\"?");
  refuses({"-n", "2", "--algorithm", "rign"}, "did you mean \"ring\"?");
  refuses({"-n", "2", "--type", "float23"}, "did you mean \"float32\"?");
  refuses({"-n", "2", "--limit", "10G"}, "10Gb/s");
  refuses({"-n", "2", "--sizes", "4X"}, "\"4X\"");
  refuses({"-n", "2", "--compare", "glo"}, "did you mean \"gloo\"?");
  refuses({"-n", "2", "--compare", "gloo", "--type", "int32"},
          "--compare measures sums of float32");
  refuses({"-n", "2", "--compare", "gloo", "--algorithm", "all"}, "takes one --algorithm");
  refuses({"-n", "2", "--compare", "gloo", "--explain"}, "omit one of the two");
  refuses({"-n", "2", "--algorithm", "ring,rign"}, "did you mean \"ring\"?");
  refuses({"--compare", "gloo"}, "-n or --hosts");
  refuses({"--engine", "gloo"}, "-n or --hosts");
  refuses({"-n", "2", "--engine", "glo"}, "unknown engine \"glo\"; known: own, mpi");
  refuses({"-n", "2", "--engine", "gloo", "--type", "int32"},
          "--engine gloo measures sums of float32");
  refuses({"-n", "2", "--engine", "nccl", "--algorithm", "ring"},
          "--algorithm with --engine nccl: its backend chooses");
  refuses({"-n", "2", "--engine", "gloo", "--encrypt"}, "neither encrypts nor authenticates");
  refuses({"-n", "2", "--engine", "gloo"}, "GRADWIRE_ENCRYPTION=on with --engine gloo",
          {{"GRADWIRE_ENCRYPTION", "on"}});
  refuses({"-n", "2", "--engine", "gloo", "--python", "no-such-python"},
          "--engine gloo: cannot start no-such-python");
}

/// A Python that has PyTorch and finds this number of GPUs.
constexpr const char* kPythonWithGpus = "#!/bin/sh\necho 1\n";

TEST(Bench, RanksOverNcclNeedAGpuEach) {
  const TemporaryFolder folder;
  const std::string python = folder.write("python", kPythonWithGpus, 0755);
  const Outcome outcome = bench({"-n", "2", "--engine", "nccl", "--python", python});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("--engine nccl: each rank needs a GPU of its own, 2 here, and " + python +
                        " finds 1"));
}

TEST(Bench, OtherCommandsSayWhyAnEngineIsNone) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", "--engine", "gloo", "-n", "2", "--", "true"},
        {"bench", "step", "--engine", "gloo", "-n", "2"},
        {"train", "config.json", "--engine", "gloo", "-n", "2"}}) {
    const Outcome outcome = run_gradwire(command);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("this build has no headers of libtorch's Gloo"),
                                   HasSubstr("init_process_group(\"gloo\")")));
  }
  const Outcome outcome = bench({"barrier", "-n", "2"}, {{"GRADWIRE_ENGINE", "nccl"}});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("GRADWIRE_ENGINE: engine \"nccl\": NCCL's groups are"),
                                 HasSubstr("init_process_group(\"cpu:gloo,cuda:nccl\")")));
}

TEST(BenchCompare, LeavesOutWhatIsNotInstalledAndSaysWhy) {
  const Outcome outcome =
      bench({"-n", "2", "--sizes", "64", "--iterations", "2", "--rounds", "1", "--compare",
             "gloo,mpi", "--python", "no-such-python", "--mpirun", "no-such-mpirun"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("gloo is skipped: cannot start no-such-python"),
                                 HasSubstr("mpi is skipped: cannot start no-such-mpirun")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("gradwire us"), Not(HasSubstr("mpi us"))));
}

// An mpirun whose times depend only on the algorithm and the size; it counts its calls.
constexpr const char* kMpirun = R"(#!/bin/bash
[[ $1 == --version ]] && { echo "mpirun (Open MPI) 4.1.4"; exit; }
echo "$*" >>"$CALLS"
case $* in
  *_algorithm\ ring*) times=(30 20) ;;
  *_algorithm\ rabenseifner*) echo "not with this number of ranks" >&2; exit 1 ;;
  *_algorithm\ recursive_doubling*) times=(10 40) ;;
  *) times=(50 50) ;;
esac
rows=
while [[ $1 != all_reduce ]]; do shift; done
shift 4
for bytes; do
  us=${times[bytes > 64]}
  rows+="{\"bytes\": $bytes, \"ranks\": 2, \"iterations\": 5, \"median_us\": ${us}000000,
          \"p99_us\": $us, \"cpu_seconds\": 1, \"wrong\": 0},"
done
echo "{\"rows\": [${rows%,}]}"
)";

TEST(BenchCompare, TakesOpenMpisFastestAlgorithmAtEachSize) {
  const TemporaryFolder folder;
  const std::string mpirun = folder.write("mpirun", kMpirun, 0755);
  folder.write("mpicc", "#!/bin/sh\ntouch \"$4\"\n", 0755);
  const Outcome outcome = bench({"-n", "2", "--sizes", "64,128", "--iterations", "2", "--rounds",
                                 "2", "--compare", "mpi", "--mpirun", mpirun, "--json", "-"},
                                {{"PATH", folder.path().string() + ":/usr/bin:/bin"},
                                 {"XDG_CACHE_HOME", folder / "cache"},
                                 {"CALLS", folder / "calls"}});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = rows_in(outcome.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["system"], "gradwire");
  EXPECT_EQ(rows[0]["rounds"], 2);
  EXPECT_EQ(rows[1]["system"], "mpi");
  EXPECT_EQ(rows[1]["algorithm"], "recursive_doubling");
  EXPECT_EQ(rows[1]["median_us"], 10e6);
  EXPECT_EQ(rows[3]["algorithm"], "ring");
  EXPECT_EQ(rows[3]["median_us"], 20e6);
  // Seven trials, then two rounds of two algorithms.
  EXPECT_EQ(sorted_lines(content_of(folder / "calls")).size(), 7u + 4u);
}

TEST(BenchCompare, AFailingPeerIsAnErrorWithItsWords) {
  const TemporaryFolder folder;
  const std::string mpirun = folder.write("mpirun",
                                          "#!/bin/sh\n[ $1 = --version ] && echo Open MPI && exit\n"
                                          "echo no slots here >&2; exit 3\n",
                                          0755);
  folder.write("mpicc", "#!/bin/sh\ntouch \"$4\"\n", 0755);
  const Outcome outcome = bench(
      {"-n", "2", "--sizes", "64", "--iterations", "2", "--compare", "mpi", "--mpirun", mpirun},
      {{"PATH", folder.path().string() + ":/usr/bin:/bin"}, {"XDG_CACHE_HOME", folder / "cache"}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("exit status 3"), HasSubstr("no slots here")));
}

TEST(BenchCompare, NothingOfAPeerIsLeftWhenItIsKilled) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string mpirun = folder.write("mpirun",
                                          "#!/bin/sh\n[ $1 = --version ] && echo Open MPI && exit\n"
                                          "setsid sh -c 'trap \"\" TERM; echo >" +
                                              fifo + "; sleep 1000'\n",
                                          0755);
  folder.write("mpicc", "#!/bin/sh\ntouch \"$4\"\n", 0755);
  Launched bench(
      {gradwire_program(), "bench", "-n", "2", "--sizes", "64", "--iterations", "2", "--compare",
       "mpi", "--mpirun", mpirun},
      {{"PATH", folder.path().string() + ":/usr/bin:/bin"}, {"XDG_CACHE_HOME", folder / "cache"}});
  std::ifstream(fifo).get();  // It is running.
  bench.send_signal(SIGKILL);
  EXPECT_EQ(bench.wait(), 137);
  EXPECT_TRUE(bench.all_gone(20'000));
}

TEST(BenchCompare, MeasuresTheRealOpenMpi) {
  const TemporaryFolder folder;
  for (const char* collective : {"gather", "point_to_point"}) {
    const Outcome outcome =
        bench({collective, "-n", "2", "--sizes", "64,4K", "--iterations", "3", "--rounds", "1",
               "--compare", "mpi", "--mpirun", GRADWIRE_MPIRUN, "--json", "-"},
              {{"XDG_CACHE_HOME", folder.path()}, {"XDG_RUNTIME_DIR", folder.path()}});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto rows = rows_in(outcome.out);
    ASSERT_EQ(rows.size(), 4u) << outcome.err;
    EXPECT_EQ(rows[1]["system"], "mpi");
    EXPECT_GT(rows[1]["median_us"], 0);
    EXPECT_EQ(rows[1]["wrong"], 0);
    EXPECT_EQ(rows[3]["bytes"], 4096);
  }
}

#ifdef GRADWIRE_TORCHRUN_PYTHON
TEST(BenchCompare, MeasuresTheRealGloo) {
  const Outcome outcome =
      bench({"point_to_point", "-n", "2", "--sizes", "64,4K", "--iterations", "3", "--rounds", "1",
             "--compare", "gloo", "--python", GRADWIRE_TORCHRUN_PYTHON, "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = rows_in(outcome.out);
  ASSERT_EQ(rows.size(), 4u) << outcome.err;
  EXPECT_EQ(rows[1]["system"], "gloo");
  EXPECT_GT(rows[1]["median_us"], 0);
  EXPECT_EQ(rows[1]["wrong"], 0);
}
#endif

}  // namespace
}  // namespace gradwire::test
