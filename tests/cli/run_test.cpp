#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/launched.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunTest, RanksFindTheEnvironmentThatTorchrunSets) {
  Launched run(run_script({"-n", "2"},
                          "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK "
                          "$MASTER_ADDR ${#MASTER_PORT} ${#GRADWIRE_SECRET} ${#OMP_NUM_THREADS}"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(sorted_lines(run.out()),
              ElementsAre("[0] 0 2 0 2 0 127.0.0.1 5 64 1", "[1] 1 2 1 2 0 127.0.0.1 5 64 1"));
  EXPECT_EQ(run.err(), "");
}

TEST(RunTest, ServersAreAJobOfTheirOwn) {
  Launched run(run_script({"-n", "5", "--servers", "2", "--no-prefix"},
                          "echo $GRADWIRE_ROLE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                          "$GRADWIRE_WORKERS $GRADWIRE_SERVERS"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(sorted_lines(run.out()),
              ElementsAre("server 0/2 0/2 3 2", "server 1/2 1/2 3 2", "worker 0/3 0/3 3 2",
                          "worker 1/3 1/3 3 2", "worker 2/3 2/3 3 2"));
}

TEST(RunTest, WorkersAndServersAndAllOfThemMeetAtDifferentPorts) {
  Launched run(run_script({"-n", "2", "--servers", "1", "--no-prefix"},
                          "echo $MASTER_PORT; echo ${GRADWIRE_SERVERS_MASTER#127.0.0.1:}"));
  EXPECT_EQ(run.wait(), 0);
  auto ports = sorted_lines(run.out());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  EXPECT_EQ(ports.size(), 3u) << run.out();
}

TEST(RunTest, ServersAreRefusedOnOnePort) {
  Launched run(run_script({"-n", "2", "--servers", "1", "--port", "29999"}, "true"));
  EXPECT_EQ(run.wait(), 2);
  EXPECT_THAT(run.err(), HasSubstr("start at ports of their own; leave out --port"));
}

TEST(RunTest, SomeRanksMustWork) {
  Launched run(run_script({"-n", "2", "--servers", "2"}, "true"));
  EXPECT_EQ(run.wait(), 2);
  EXPECT_THAT(run.err(), HasSubstr("--servers 2 of 2 ranks: at least one rank must work"));
}

TEST(RunTest, AllRanksShareOnePortAndSecretWhichEachRunMakesAnew) {
  const auto values = [] {
    Launched run(run_script({"-n", "3", "--no-prefix"}, "echo $MASTER_PORT $GRADWIRE_SECRET"));
    EXPECT_EQ(run.wait(), 0);
    return sorted_lines(run.out());
  };
  const auto first = values();
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0], first[2]);
  EXPECT_NE(first[0], values()[0]);
}

TEST(RunTest, OptionsReachTheRanks) {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", "hush\n", 0600);
  Launched run(run_script({"-n", "1", "--interface", "lo", "--master-addr", "127.0.0.2",
                           "--master-port", "1234", "--secret-file", secret, "--env", "A=b c",
                           "--env", "HERE", "--encrypt", "--no-prefix"},
                          "echo $GRADWIRE_ENCRYPTION $GRADWIRE_INTERFACE $MASTER_ADDR:$MASTER_PORT "
                          "$GRADWIRE_SECRET $A "
                          "$HERE $OMP_NUM_THREADS"),
               {{"HERE", "there"}, {"OMP_NUM_THREADS", "7"}});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "on lo 127.0.0.2:1234 hush b c there 7\n");
}

TEST(RunTest, OnePortIsTheMastersToo) {
  const std::string script = "echo $GRADWIRE_PORT $MASTER_PORT";
  Launched run(run_script({"-n", "1", "--port", "1234", "--no-prefix"}, script));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "1234 1234\n");
  Launched both(
      run_script({"-n", "1", "--port", "1234", "--master-port", "99", "--no-prefix"}, script));
  EXPECT_EQ(both.wait(), 0);
  EXPECT_EQ(both.out(), "1234 99\n");
  Launched inherited(run_script({"-n", "1", "--no-prefix"}, script), {{"GRADWIRE_PORT", "4321"}});
  EXPECT_EQ(inherited.wait(), 0);
  EXPECT_EQ(inherited.out(), "4321 4321\n");
}

TEST(RunTest, RanksRaiseTheirLimitOfDescriptorsThemselves) {
  const std::string rank = " && exec " + gradwire_program() + " bench barrier --iterations 1";
  Launched soft(run_script({"-n", "12"}, "ulimit -S -n 20" + rank));
  EXPECT_EQ(soft.wait(), 0) << soft.err();
  Launched hard(run_script({"-n", "12"}, "ulimit -n 20" + rank));
  EXPECT_EQ(hard.wait(), 1);
  EXPECT_THAT(hard.err(),
              AllOf(HasSubstr("file descriptors and may have 20"), HasSubstr("ulimit -n ")));
}

TEST(RunTest, AGivenSecretIsKept) {
  Launched run(run_script({"-n", "1", "--no-prefix"}, "echo $GRADWIRE_SECRET"),
               {{"GRADWIRE_SECRET", "mine"}});
  run.wait();
  EXPECT_EQ(run.out(), "mine\n");
}

TEST(RunTest, ArgumentsArriveAsTheyAre) {
  const std::string strange = "it's \"$HOME\" `id` * \\ \n end";
  Launched run({gradwire_program(), "run", "-n", "1", "--no-prefix", "printf", "<%s>", strange, "",
                "-n", "--"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "<" + strange + "><><-n><-->");
}

TEST(RunTest, ExitsAsTheFirstRankThatFailed) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"exit 0", 0}, {"exit 3", 3}, {"kill -KILL $$", 137}, {"kill -SEGV $$", 139}};
  for (const auto& [how, status] : cases) {
    Launched run(run_script({"-n", "3"}, "if [ $RANK = 1 ]; then " + how + "; fi"));
    EXPECT_EQ(run.wait(), status) << how;
    EXPECT_TRUE(run.all_gone());
  }
}

TEST(RunTest, AFailureStopsTheOthersAndIsNamed) {
  Launched run(
      run_script({"-n", "4"}, std::string("if [ $RANK = 2 ]; then exit 5; fi; ") + kForEver));
  EXPECT_EQ(run.wait(), 5);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("gradwire run: rank 2 on host "),
                               HasSubstr("failed with exit status 5")));
  EXPECT_TRUE(run.all_gone());
}

// Rank 0 has lost rank 2, and ends before it.
constexpr const char* kReports = R"sh(
case $RANK in
  0) echo "2 rank 2 left the job" >> "$GRADWIRE_REPORT"; exit 1;;
  2) echo "2 after an exception: ValueError: bad sample" >> "$GRADWIRE_REPORT"; sleep 0.1; exit 5;;
  *) exec sleep 100;;
esac)sh";

TEST(RunTest, TheRankThatFailedFirstIsNamedByTheReportsOfTheRanks) {
  Launched run(run_script({"-n", "3"}, kReports));
  EXPECT_EQ(run.wait(), 5);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("gradwire run: rank 2 on host "),
                               HasSubstr("failed with exit status 5 (after an exception: "
                                         "ValueError: bad sample); the other ranks were stopped")));
}

TEST(RunTest, ARankThatFailedAndIsTooSlowToEndIsNamed) {
  Launched run(run_script({"-n", "3"}, R"sh(
case $RANK in
  0) echo "2 rank 2 left the job" >> "$GRADWIRE_REPORT"; exit 1;;
  2) echo "2 after an exception: ValueError: bad sample" >> "$GRADWIRE_REPORT";;
esac
exec sleep 100)sh"));
  EXPECT_NE(run.wait(), 0);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("gradwire run: rank 2 on host "),
                               HasSubstr("(after an exception: ValueError: bad sample)")));
}

TEST(RunTest, ARankThatEndedTooEarlyIsNamedByThoseWhoLostIt) {
  Launched run(
      run_script({"-n", "3"},
                 "[ $RANK = 1 ] && exit 0; sleep 0.1; "
                 "printf '1 rank 1 left the job\nbefore its part' >> $GRADWIRE_REPORT; exit 4"));
  EXPECT_EQ(run.wait(), 4);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("gradwire run: rank 1 on host "),
                               HasSubstr("ended before the others had finished (rank 1 left")));
}

// Rank 1 hangs, so that its peer takes it for dead: the launcher ends it.
TEST(RunTest, ARankThatTheLauncherKilledIsNotSaidToHaveBeenKilled) {
  Launched run(run_script({"-n", "2", "--grace", "0.2"},
                          "trap '' TERM; [ $RANK = 1 ] && exec sleep 100; "
                          "echo '1 nothing received from rank 1' >> $GRADWIRE_REPORT; exit 3"));
  EXPECT_EQ(run.wait(), 3);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rank 0 on host "),
                               HasSubstr("status 3 (nothing received from rank 1); the other")));
}

TEST(RunTest, ReportsThatMakeNoSenseAreIgnored) {
  for (const std::string report : {"x", "7 beyond the ranks", "-3 a", "1", ""}) {
    Launched run(run_script({"-n", "2"}, "[ $RANK = 0 ] && exit 0; echo \"" + report +
                                             "\" >> $GRADWIRE_REPORT; exit 4"));
    EXPECT_EQ(run.wait(), 4);
    EXPECT_THAT(run.err(), HasSubstr("rank 1 on host ")) << report;
  }
}

TEST(RunTest, TheJobGoesOnWithoutOptionalRanks) {
  Launched run(run_script({"-n", "3"},
                          "echo optional 1 3 >> $GRADWIRE_REPORT; case $RANK in "
                          "0) sleep 1.5; echo done;; "
                          "1) sleep 0.5; exit 3;; 2) sleep 0.5; kill -9 $$;; esac"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "[0] done\n");
  EXPECT_THAT(run.err(), AllOf(HasSubstr("failed with exit status 3; the others go on without it"),
                               HasSubstr("by signal 9 (SIGKILL); the others go on without it")));
}

TEST(RunTest, AnOptionalRankMayFailJustBeforeTheEnd) {
  Launched run(run_script({"-n", "2"},
                          "echo optional 1 2 >> $GRADWIRE_REPORT; [ $RANK = 1 ] && exit 3; true"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), HasSubstr("rank 1 on host "));
}

/// The launcher has seen the end of a process when its number is free again.
TEST(RunTest, AnOptionalRankMayFailBeforeTheOthersTakeThatBack) {
  const TemporaryFolder folder;
  const std::string pid = folder / "pid";
  Launched run(run_script({"-n", "2"},
                          "echo optional 1 2 >> $GRADWIRE_REPORT; case $RANK in "
                          "1) echo $$ > " +
                              pid + ".part; mv " + pid + ".part " + pid +
                              "; sleep 0.2; "
                              "kill -9 $$;; "
                              "0) until [ -e " +
                              pid +
                              " ]; do sleep 0.02; done; "
                              "while kill -0 $(cat " +
                              pid +
                              "); do sleep 0.02; done 2>/dev/null; "
                              "echo optional 0 0 >> $GRADWIRE_REPORT;; esac"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), HasSubstr("by signal 9 (SIGKILL); the others go on without it"));
}

TEST(RunTest, OptionalRanksMayNotAllFail) {
  Launched run(
      run_script({"-n", "2"}, "echo optional 0 2 >> $GRADWIRE_REPORT; sleep 0.$RANK; exit 3"));
  EXPECT_EQ(run.wait(), 3);
  EXPECT_THAT(run.err(), HasSubstr("the other ranks were stopped"));
}

TEST(RunTest, OtherRanksAreNotOptional) {
  for (const std::string note :
       {"optional 2 3", "optional 0 3' >> $GRADWIRE_REPORT; echo 'optional 0 0", "optional",
        "optional 0", "optionally 0 3"}) {
    Launched run(run_script({"-n", "3"}, "echo '" + note +
                                             "' >> $GRADWIRE_REPORT; [ $RANK = 1 ] && exit 3; "
                                             "while :; do sleep 0.1; done"));
    EXPECT_EQ(run.wait(), 3) << note;
    EXPECT_THAT(run.err(), HasSubstr("the other ranks were stopped")) << note;
  }
}

constexpr const char* kSavesFor600Milliseconds =
    "trap 'echo saving >> $GRADWIRE_REPORT; sleep 0.6; echo saved; "
    "echo saved >> $GRADWIRE_REPORT; exit 143' TERM; echo ready; while :; do sleep 0.05; done";

TEST(RunTest, TheGracePeriodDoesNotCutOffACheckpointThatHasBegun) {
  Launched run(run_script({"-n", "2", "--grace", "0.2"}, kSavesFor600Milliseconds));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGTERM);
  EXPECT_EQ(run.wait(), 143);
  EXPECT_THAT(run.out(), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
  EXPECT_THAT(run.err(), AllOf(HasSubstr("waiting for a checkpoint to be saved"),
                               HasSubstr("stopped by SIGTERM")));
  EXPECT_TRUE(run.all_gone());
}

TEST(RunTest, AUserSignalThatEndsTheRanksIsNamed) {
  Launched run(run_script({"-n", "2"},
                          "trap 'exit 138' USR1; echo ready; while :; do sleep 0.05; "
                          "done"));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGUSR1);
  EXPECT_EQ(run.wait(), 138);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("gradwire run: stopped by SIGUSR1\n"),
                               Not(HasSubstr("failed with exit status"))));
}

TEST(RunTest, ASignalIsNamed) {
  Launched run(run_script({"-n", "2"},
                          "if [ $RANK = 1 ]; then kill -KILL $$; fi; " + std::string(kForEver)));
  EXPECT_EQ(run.wait(), 137);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rank 1 on host"), HasSubstr("signal 9 (SIGKILL)")));
}

TEST(RunTest, AProgramThatIsNotThere) {
  Launched run({gradwire_program(), "run", "-n", "2", "--", "no-such-program"});
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), HasSubstr("cannot start no-such-program: No such file or directory"));
}

TEST(RunTest, RanksThatIgnoreSigtermAreKilledAfterTheGracePeriod) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Launched run(
      run_script({"-n", "2", "--grace", "0.2"},
                 "if [ $RANK = 1 ]; then read x <$FIFO; exit 4; fi; trap '' TERM; echo >$FIFO; " +
                     std::string(kForEver)),
      {{"FIFO", fifo}});
  EXPECT_EQ(run.wait(), 4);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("did not end within 0.2 s (--grace): rank 0"),
                               HasSubstr("rank 1 on host")));
  EXPECT_TRUE(run.all_gone());
}

class SignalForwarding : public ::testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(SignalForwarding, ReachesRanksThatHandleIt) {
  const auto [signal, name] = GetParam();
  Launched run(run_script({"-n", "2"}, std::string("trap 'echo got ") + name + "; exit 0' " + name +
                                           "; echo ready; " + kForEver));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(signal);
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.out(), AllOf(HasSubstr(std::string("[0] got ") + name),
                               HasSubstr(std::string("[1] got ") + name)));
  EXPECT_TRUE(run.all_gone());
}

TEST_P(SignalForwarding, EndsRanksThatDoNot) {
  const auto [signal, name] = GetParam();
  Launched run(run_script({"-n", "2"}, "echo ready; exec sleep 1000"));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(signal);
  EXPECT_EQ(run.wait(), 128 + signal);
  EXPECT_THAT(run.err(), HasSubstr(std::string("stopped by SIG") + name));
  EXPECT_TRUE(run.all_gone());
}

INSTANTIATE_TEST_SUITE_P(RunTest, SignalForwarding,
                         ::testing::Values(std::pair{SIGINT, "INT"}, std::pair{SIGTERM, "TERM"},
                                           std::pair{SIGQUIT, "QUIT"}),
                         [](const auto& test) { return std::string(test.param.second); });

TEST(RunTest, PassesUserSignalsOnAndGoesOn) {
  Launched run(run_script({"-n", "2"},
                          "trap 'echo saved; exit 0' USR1; echo ready; " + std::string(kForEver)));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGUSR1);
  EXPECT_TRUE(run.wait_for_output("saved", 2));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), Not(HasSubstr("stopped")));
}

TEST(RunTest, ASecondInterruptKills) {
  Launched run(run_script({"-n", "2", "--grace", "1000"},
                          "trap 'echo no' INT; echo ready; " + std::string(kForEver)));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGINT);
  ASSERT_TRUE(run.wait_for_output("no", 2));
  run.send_signal(SIGINT);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_TRUE(run.all_gone());
}

// Its own session, ignores all signals but SIGKILL, and its parent exits; it is running when the
// script continues.
constexpr const char* kDaemon =
    "mkfifo $FOLDER/$RANK; setsid sh -c 'trap \"\" TERM INT HUP; echo >$FOLDER/$RANK; while :; do "
    "sleep 1000; done' & read x <$FOLDER/$RANK; ";

TEST(RunTest, NoDaemonIsLeftWhenRanksSucceed) {
  const TemporaryFolder folder;
  Launched run(run_script({"-n", "2", "--grace", "0.2"}, kDaemon), {{"FOLDER", folder.path()}});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_TRUE(run.all_gone());
}

TEST(RunTest, NoDaemonIsLeftWhenARankFails) {
  const TemporaryFolder folder;
  Launched run(run_script({"-n", "2", "--grace", "0.2"},
                          kDaemon + std::string("[ $RANK = 0 ] && exit 9; ") + kForEver),
               {{"FOLDER", folder.path()}});
  EXPECT_EQ(run.wait(), 9);
  EXPECT_TRUE(run.all_gone());
}

TEST(RunTest, NothingIsLeftWhenTheLauncherIsKilled) {
  const TemporaryFolder folder;
  Launched run(run_script({"-n", "2"}, kDaemon + std::string("echo ready; ") + kForEver),
               {{"FOLDER", folder.path()}});
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGKILL);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_TRUE(run.all_gone(20'000));
}

TEST(RunTest, OutputKeepsItsStreamAndItsLines) {
  Launched run(run_script({"-n", "1"}, R"(printf 'a\n10\r20\rlast'; printf 'e\nf' >&2)"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "[0] a\n[0] 10\r[0] 20\r[0] last\n");
  EXPECT_EQ(run.err(), "[0] e\n[0] f\n");
}

TEST(RunTest, BigOutputsAreNotTorn) {
  constexpr int kLines = 20'000;  // Lines of 56 bytes: 1.1 MB from each rank.
  Launched run(run_script({"-n", "4"},
                          "yes \"rank $RANK says 0123456789012345678901234567890123456789\""
                          " | head -n 20000"));
  EXPECT_EQ(run.wait(), 0);
  std::map<std::string, int> counts;
  for (const std::string& line : sorted_lines(run.out())) ++counts[line];
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& [line, times] : counts) {
    EXPECT_EQ(line, "[" + line.substr(1, 1) + "] rank " + line.substr(1, 1) +
                        " says 0123456789012345678901234567890123456789");
    EXPECT_EQ(times, kLines);
  }
}

TEST(RunTest, StandardInputOfRanksIsEmpty) {
  Launched run(run_script({"-n", "2"}, "cat; readlink /proc/self/fd/0"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(sorted_lines(run.out()), ElementsAre("[0] /dev/null", "[1] /dev/null"));
}

TEST(RunTest, AClosedOutputEndsRanksAsWithoutALauncher) {
  Launched run(run_script({"-n", "2"}, "echo ready; exec yes"));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.close_stdout();
  EXPECT_EQ(run.wait(), 128 + SIGPIPE);
  EXPECT_TRUE(run.all_gone());
}

TEST(RunTest, AReaderThatGoesAwayBeforeTheLastOutputIsNotWaitedFor) {
  // The output of each rank fits into its pipe, so that all ranks end; the total exceeds the
  // launcher's buffer.
  constexpr int kRanks = 30;
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  UniqueFd held(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  const UniqueFd ends(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  Launched run(run_script({"-n", std::to_string(kRanks)},
                          "exec 9>$FIFO; printf x >&9; head -c 60000 /dev/zero | tr '\\0' x"),
               {{"FIFO", fifo}});
  char letter = 0;
  for (int i = 0; i < kRanks; ++i) ASSERT_EQ(::read(ends.get(), &letter, 1), 1);
  held.close();
  ASSERT_EQ(::read(ends.get(), &letter, 1), 0);  // All have exited.
  run.close_stdout();
  ASSERT_TRUE(run.all_gone(20'000));
  EXPECT_EQ(run.wait(), 0);
}

TEST(RunTest, WrongCommandLines) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-n", "0", "true"}, "not in range 1 to 4096"},
      {{"-n", "2"}, "no program given"},
      {{"--bogus", "--", "true"}, "--bogus"},
      {{"--hosts", "a", "--hostfile", "f", "true"}, "excludes"},
  };
  for (const auto& [options, said] : cases) {
    std::vector<std::string> arguments{gradwire_program(), "run"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Launched run(arguments);
    EXPECT_EQ(run.wait(), 2);
    EXPECT_THAT(run.err(), HasSubstr(said));
  }
}

TEST(RunTest, WrongValues) {
  const TemporaryFolder folder;
  const std::string open = folder.write("open", "a secret of some length", 0644);
  const std::string shared = folder.write("shared", "a secret of some length", 0640);
  const std::string empty = folder.write("empty", "\n", 0600);
  const std::string linked = folder / "linked";
  std::filesystem::create_symlink(folder.write("own", "a secret of some length", 0600), linked);
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string hosts = folder.write("hosts", "a\nb slots=x\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--hostfile", "/nowhere"}, "--hostfile /nowhere: cannot read"},
      {{"--hostfile", folder.path()}, "cannot read"},
      {{"--hostfile", hosts}, hosts + ":2"},
      {{"--secret-file", open}, "mode 644; it must be"},
      {{"--secret-file", shared}, "mode 640; it must be"},
      {{"--secret-file", linked}, "symbolic link"},
      {{"--secret-file", fifo}, "is not a regular file"},
      {{"--secret-file", empty}, "the file is empty"},
      {{"--secret-file", folder / "none"}, "no such file"},
      {{"--env", "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"},
      {{"--env", "1x=2"}, "not a variable name"},
      {{"--hosts", "a:1,b:1", "-n", "3"}, "3 ranks do not fit"},
      {{"--master-addr", "0.0.0.0"}, "--master-addr 0.0.0.0"},
  };
  for (const auto& [options, said] : cases) {
    Launched run(run_script(options, "echo started"));
    EXPECT_EQ(run.wait(), 2);
    EXPECT_THAT(run.err(), HasSubstr(said));
    EXPECT_EQ(run.out(), "");
  }
}

TEST(RunTest, ShortSecretsAreForTheLoopbackAlone) {
  const TemporaryFolder folder;
  const std::string file = folder.write("secret", "hush\n", 0600);
  const std::vector<std::string> elsewhere{"-n", "1", "--master-addr", "192.0.2.1"};
  std::vector<std::string> with_file = elsewhere;
  with_file.insert(with_file.end(), {"--secret-file", file});
  Launched from_file(run_script(with_file, "echo started"));
  EXPECT_EQ(from_file.wait(), 2);
  EXPECT_THAT(from_file.err(), HasSubstr("--secret-file has 4 characters"));
  Launched from_environment(run_script(elsewhere, "echo started"), {{"GRADWIRE_SECRET", "hush"}});
  EXPECT_EQ(from_environment.wait(), 2);
  EXPECT_THAT(from_environment.err(), HasSubstr("GRADWIRE_SECRET has 4 characters"));
  EXPECT_EQ(from_file.out() + from_environment.out(), "");
  Launched here(run_script({"-n", "1", "--no-prefix", "--secret-file", file}, "echo started"));
  EXPECT_EQ(here.wait(), 0);
  EXPECT_EQ(here.out(), "started\n");
}

}  // namespace
}  // namespace gradwire::test
