#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "gradwire/cli/launch/remote_script.h"
#include "tests/cli/launched.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Ways to run a command on another host. They differ in the treatment of the arguments and of our
/// environment, and in the fate of the command when the remote shell's client is killed.
struct Way {
  const char* name;
  const char* script;
};

/// For the names of the tests.
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

// ssh: joins its arguments for a shell on the other side. Our environment is not passed on; the
// command has its own session and outlives the client, but sees its streams close.
constexpr Way kLikeSsh{"like_ssh", R"(#!/bin/sh
shift
cd /
exec env -i PATH="$PATH" setsid --wait --fork sh -c "$*"
)"};
// `ip netns exec`, `docker exec`: pass the arguments unchanged.
constexpr Way kLikeExec{"like_exec", R"(#!/bin/sh
shift
exec "$@"
)"};
// A remote shell with bash as the other side's sh.
constexpr Way kBash{"bash", R"(#!/bin/sh
shift
[ "$1" = sh ] && shift && exec bash --posix "$@"
)"};
// An account whose login prints a greeting on stdout.
constexpr Way kGreeting{"greeting", R"(#!/bin/sh
echo "Welcome to $1"
shift
exec sh -c "$*"
)"};

class RemoteTest : public ::testing::TestWithParam<Way> {
 protected:
  RemoteTest() : rsh_(folder_.write("rsh", GetParam().script, 0755)) {}

  /// Two ranks on two hosts.
  std::vector<std::string> command(const std::string& script,
                                   std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"--hosts", "a,b", "--rsh", rsh_, "--grace", "1"});
    return run_script(options, script);
  }

  TemporaryFolder folder_;
  std::string rsh_;
};

TEST_P(RemoteTest, RanksFindTheirEnvironmentAndFolder) {
  Launched run(command("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK "
                       "$MASTER_ADDR ${#GRADWIRE_SECRET} ${#OMP_NUM_THREADS} \"$A\" "
                       "$GRADWIRE_INTERFACE \"$PWD\"",
                       {"--env", "A=it's \"so\" $1"}),
               {{"GRADWIRE_INTERFACE", "lo"}});
  EXPECT_EQ(run.wait(), 0);
  const std::string folder = std::filesystem::current_path();
  EXPECT_THAT(run.out(), HasSubstr("[0] 0 2 0 1 0 a 64 1 it's \"so\" $1 lo " + folder + "\n"));
  EXPECT_THAT(run.out(), HasSubstr("[1] 1 2 0 1 1 a 64 1 it's \"so\" $1 lo " + folder + "\n"));
  EXPECT_THAT(run.out(), Not(HasSubstr("Welcome")));
  std::vector<std::string> greetings;
  if (std::string_view(GetParam().name) == "greeting") {
    greetings = {"[0] Welcome to a", "[1] Welcome to b"};
  }
  EXPECT_EQ(sorted_lines(run.err()), greetings);
}

TEST_P(RemoteTest, PythonPrintsAtOnceUnlessItIsToldOtherwise) {
  Launched run(command("echo $PYTHONUNBUFFERED"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(sorted_lines(run.out()), ElementsAre("[0] 1", "[1] 1"));
  Launched told(command("echo \"<$PYTHONUNBUFFERED>\"", {"--env", "PYTHONUNBUFFERED="}));
  EXPECT_EQ(told.wait(), 0);
  EXPECT_THAT(sorted_lines(told.out()), ElementsAre("[0] <>", "[1] <>"));
}

TEST_P(RemoteTest, ArgumentsArriveAsTheyAre) {
  const std::string strange = "it's \"$HOME\" `id` * \\ {} \n end";
  Launched run({gradwire_program(), "run", "--hosts", "a", "--rsh", rsh_, "--no-prefix", "--",
                "printf", "<%s>\\n", strange, "", "-n"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.out(), HasSubstr("<" + strange + ">\n<>\n<-n>\n"));
}

TEST_P(RemoteTest, ExitsAsTheFirstRankThatFailed) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"exit 3", 3}, {"kill -KILL $$", 137}, {"kill -INT $$", 130}};
  for (const auto& [how, status] : cases) {
    Launched run(command("if [ $RANK = 1 ]; then " + how + "; fi; " + kForEver));
    EXPECT_EQ(run.wait(), status) << how;
    EXPECT_THAT(run.err(), HasSubstr("rank 1 on host b failed with exit status"));
    EXPECT_TRUE(run.all_gone());
  }
}

TEST_P(RemoteTest, ReportsOfRanksNameTheOneThatFailedFirst) {
  Launched run(command(
      "if [ $RANK = 0 ]; then echo '1 rank 1 left the job' >> $GRADWIRE_REPORT; exit 3; fi; "
      "echo '1 after an exception: ValueError: bad' >> $GRADWIRE_REPORT; printf unfinished >&2; "
      "sleep 0.1; exit 5"));
  EXPECT_EQ(run.wait(), 5);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("[1] unfinished\n"), Not(HasSubstr("gradwire-rank")),
                               HasSubstr("rank 1 on host b failed with exit status 5 (after an "
                                         "exception: ValueError: bad)")));
  EXPECT_TRUE(run.all_gone());
}

TEST_P(RemoteTest, TheJobGoesOnWithoutAnOptionalRank) {
  Launched run(
      command("echo optional 1 2 >> $GRADWIRE_REPORT; sleep 1; [ $RANK = 1 ] && kill -9 $$; "
              "sleep 2; echo done"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "[0] done\n");
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rank 1 on host b"), HasSubstr("the others go on"),
                               Not(HasSubstr("gradwire-rank"))));
  EXPECT_TRUE(run.all_gone());
}

TEST_P(RemoteTest, TheGracePeriodDoesNotCutOffACheckpointThatHasBegun) {
  Launched run(
      command("trap 'echo saving >> $GRADWIRE_REPORT; sleep 4; echo saved; "
              "echo saved >> $GRADWIRE_REPORT; exit 143' TERM; echo ready; "
              "while :; do sleep 0.05; done"));
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGTERM);
  EXPECT_EQ(run.wait(), 143);
  EXPECT_THAT(run.out(), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
  EXPECT_THAT(run.err(), AllOf(HasSubstr("waiting for a checkpoint to be saved"),
                               Not(HasSubstr("gradwire-rank"))));
  EXPECT_TRUE(run.all_gone());
}

TEST_P(RemoteTest, SignalsArePassedOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Launched run(command(
        std::string(
            "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM; echo ready; ") +
        kForEver));
    ASSERT_TRUE(run.wait_for_output("ready", 2));
    run.send_signal(signal);
    EXPECT_EQ(run.wait(), 0);
    const std::string name = signal == SIGINT ? "INT" : "TERM";
    EXPECT_THAT(run.out(), AllOf(HasSubstr("[0] got " + name), HasSubstr("[1] got " + name)));
    EXPECT_TRUE(run.all_gone());
  }
}

TEST_P(RemoteTest, AProgramThatIsNotInThePathThereNamesTheRemedy) {
  Launched run({gradwire_program(), "run", "--hosts", "a", "--rsh", rsh_, "--", "no-such-program"});
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("no program no-such-program in the PATH of this host (/"),
                               HasSubstr("--env PATH"), HasSubstr("rank 0 on host a failed")));
  Launched path({gradwire_program(), "run", "--hosts", "a", "--rsh", rsh_, "--", "/no/program"});
  EXPECT_EQ(path.wait(), 127);
  EXPECT_THAT(path.err(), HasSubstr("no program /no/program on this host: install it there"));
}

TEST_P(RemoteTest, AFolderThatIsNotThereNamesTheRemedy) {
  const TemporaryFolder gone;
  const std::string folder = gone / "gone";
  Launched hidden(
      {"sh", "-c",
       "mkdir " + folder + " && cd " + folder + " && exec " + gradwire_program() +
           " run --hosts a --rsh '" +
           gone.write("rsh", "#!/bin/sh\nrmdir " + folder + "\ncd /\nexec " + rsh_ + " \"$@\"\n",
                      0755) +
           "' -- true"});
  EXPECT_EQ(hidden.wait(), 1);
  EXPECT_THAT(hidden.err(), AllOf(HasSubstr("create it (mkdir -p)"),
                                  HasSubstr("rank 0 on host a could not be started")));
}

// Its own session, ignores all signals but SIGKILL, and its parent exits.
constexpr const char* kRemoteDaemon =
    "mkfifo $GRADWIRE_TEST_FOLDER/$RANK; setsid sh -c 'trap \"\" TERM INT HUP; "
    "echo >$GRADWIRE_TEST_FOLDER/$RANK; while :; do sleep 1000; done' & "
    "read x <$GRADWIRE_TEST_FOLDER/$RANK; ";

TEST_P(RemoteTest, NoDaemonIsLeft) {
  Launched run(command(kRemoteDaemon + std::string("[ $RANK = 0 ] && exit 9; ") + kForEver),
               {{"GRADWIRE_TEST_FOLDER", folder_.path()}});
  EXPECT_EQ(run.wait(), 9);
  EXPECT_TRUE(run.all_gone(20'000));
}

TEST_P(RemoteTest, NothingIsLeftWhenTheLauncherIsKilled) {
  Launched run(command(kRemoteDaemon + std::string("echo ready; ") + kForEver),
               {{"GRADWIRE_TEST_FOLDER", folder_.path()}});
  ASSERT_TRUE(run.wait_for_output("ready", 2));
  run.send_signal(SIGKILL);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_TRUE(run.all_gone(20'000));
}

TEST_P(RemoteTest, SecretsAreInNoCommandLine) {
  // The brackets keep grep from matching itself.
  Launched run(command("grep -ls \"[x]${GRADWIRE_SECRET#x}\" /proc/[0-9]*/cmdline; echo done",
                       {"-n", "1", "--no-prefix"}),
               {{"GRADWIRE_SECRET", "xHIDDEN-IN-THE-ENVIRONMENT"}});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.out(), AllOf(HasSubstr("done\n"), Not(HasSubstr("/proc"))));
}

INSTANTIATE_TEST_SUITE_P(Ways, RemoteTest, ::testing::Values(kLikeSsh, kLikeExec, kBash, kGreeting),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RemoteHostsTest, HostfileSlotsMakeGroups) {
  const TemporaryFolder folder;
  const std::string rsh = folder.write("rsh", kLikeSsh.script, 0755);
  const std::string hosts = folder.write("hosts", "a slots=2 address=127.0.0.9\nb slots=1\n");
  Launched run(run_script({"--hostfile", hosts, "--rsh", rsh},
                          "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(sorted_lines(run.out()), ElementsAre("[0] 0 0 2 0 127.0.0.9", "[1] 1 1 2 0 127.0.0.9",
                                                   "[2] 2 0 1 1 127.0.0.9"));
}

TEST(RemoteHostsTest, AHostThatCannotBeReached) {
  const TemporaryFolder folder;
  const std::string rsh = folder.write("rsh", "#!/bin/sh\necho no route >&2\nexit 255\n", 0755);
  Launched run(run_script({"--hosts", "a,b", "--rsh", rsh}, "echo started"));
  EXPECT_EQ(run.wait(), 255);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("no route\n"), HasSubstr("could not be started"),
                               HasSubstr(rsh + " "), HasSubstr("exit status 255")));
  EXPECT_EQ(run.out(), "");
}

TEST(RemoteHostsTest, NamesTheRemedyForSsh) {
  const TemporaryFolder folder;
  folder.write("ssh", "#!/bin/sh\necho Host key verification failed. >&2\nexit 255\n", 0755);
  Launched run(run_script({"--hosts", "a,b"}, "echo started"),
               {{"PATH", folder.path().string() + ":" + std::getenv("PATH")}});
  EXPECT_EQ(run.wait(), 255);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("Host key verification failed.\n"),
                               ContainsRegex("\"ssh (a|b) true\" must work without a question"),
                               HasSubstr("ssh-copy-id"), HasSubstr("ssh-keyscan")));
}

TEST(RemoteHostsTest, ARemoteShellThatRunsNothing) {
  const TemporaryFolder folder;
  // A remote shell without input, as with `ssh -n`, or `docker exec` without -i.
  const std::string rsh = folder.write("rsh", "#!/bin/sh\nshift\nexec \"$@\" </dev/null\n", 0755);
  Launched run(run_script({"--hosts", "a,b", "--rsh", rsh}, "echo started"));
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("could not be started: \"" + rsh + " "),
                               HasSubstr("forward its standard input"), HasSubstr("docker exec -i"),
                               HasSubstr("ssh -n")));
  EXPECT_EQ(run.out(), "");
}

TEST(RemoteHostsTest, ARemoteShellThatIsNotThere) {
  Launched run(run_script({"--hosts", "a,b", "--rsh", "no-such-shell"}, "echo started"));
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), HasSubstr("cannot start no-such-shell"));
}

/// A remote shell that prints "connecting" and then hangs, whatever the command, on every host but
/// a.
class HangingShell {
 public:
  HangingShell() : fifo_(folder_ / "fifo") {
    EXPECT_EQ(::mkfifo(fifo_.c_str(), 0600), 0);
    path_ = folder_.write("rsh",
                          "#!/bin/sh\n[ $1 = a ] && shift && exec \"$@\"\n"
                          "trap '' TERM INT\necho connecting >&2\nread x <" +
                              fifo_ + "\n",
                          0755);
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string fifo_;
  std::string path_;
};

TEST(RemoteHostsTest, AHostThatHangsCanBeInterrupted) {
  const HangingShell rsh;
  Launched run(run_script({"--hosts", "b,c", "--rsh", rsh.path()}, "echo started"));
  ASSERT_TRUE(run.wait_for_error("connecting", 2));
  run.send_signal(SIGINT);
  EXPECT_EQ(run.wait(), 130);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("stopped by SIGINT"), Not(HasSubstr("SIGKILL"))));
  EXPECT_TRUE(run.all_gone());
}

TEST(RemoteHostsTest, AHostThatHangsIsNamedAndEnded) {
  const HangingShell rsh;
  Launched run(run_script(
      {"--hosts", "a,b", "--rsh", rsh.path(), "--start-timeout", "1", "--master-addr", "127.0.0.1"},
      kForEver));
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rank 1 on host b could not be started: \"" + rsh.path() +
                                         " b sh\" had not started the rank after "),
                               HasSubstr("--start-timeout"), Not(HasSubstr("SIGKILL"))));
  EXPECT_TRUE(run.all_gone());
}

TEST(RemoteHostsTest, NoShellThatHangsIsLeftWhenTheLauncherIsKilled) {
  const HangingShell rsh;
  Launched run(run_script({"--hosts", "b,c", "--rsh", rsh.path()}, "echo started"));
  ASSERT_TRUE(run.wait_for_error("connecting", 2));
  run.send_signal(SIGKILL);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_TRUE(run.all_gone(20'000));
}

TEST(ShellQuoteTest, MakesOneWordOfAnything) {
  EXPECT_EQ(cli::shell_quote("a b"), "'a b'");
  EXPECT_EQ(cli::shell_quote("it's"), "'it'\\''s'");
  EXPECT_EQ(cli::shell_quote(""), "''");
}

TEST(RemoteScriptTest, HasNoSecretInTheMarkOrReadyLine) {
  const std::string script =
      cli::remote_script({3, "ab12", "/tmp", {{"GRADWIRE_SECRET", "s"}}, {"true"}});
  EXPECT_THAT(script, AllOf(HasSubstr("mark=GRADWIRE_PROCESS=3.ab12\n"),
                            HasSubstr("export GRADWIRE_SECRET='s'\n"), Not(HasSubstr("{{"))));
  EXPECT_EQ(cli::control_line(SIGTERM, "17"), "TERM 17\n");
}

}  // namespace
}  // namespace gradwire::test
