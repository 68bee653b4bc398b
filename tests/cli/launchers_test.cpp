#include <gmock/gmock.h>

#include "tests/cli/launched.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Returns the output of `gradwire env` on each rank, in rank order.
std::vector<std::string> lines_of(const std::string& text) {
  return sorted_lines(text);
}

std::string part(const std::string& line, const std::string& name) {
  const std::size_t begin = line.find(name + "=") + name.size() + 1;
  return line.substr(begin, line.find(' ', begin) - begin);
}

TEST(EnvTest, PrintsTheJobWithoutItsSecret) {
  Launched env({gradwire_program(), "env"}, {{"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", "99"},
                                             {"GRADWIRE_SECRET", "hush"}});
  EXPECT_EQ(env.wait(), 0);
  EXPECT_EQ(env.out(),
            "launcher=gradwire rank=1 world_size=2 local_rank=1 local_world_size=2 "
            "master=127.0.0.1:99 port=free interface=(route) secret=set rails=lo:127.0.0.1\n");
}

TEST(EnvTest, SaysWhatKeepsItFromTheOthers) {
  Launched env({gradwire_program(), "env"},
               {{"GRADWIRE_INTERFACE", "nosuch"}, {"GRADWIRE_PORT", "4321"}});
  EXPECT_EQ(env.wait(), 0);
  EXPECT_THAT(env.out(),
              AllOf(HasSubstr(" port=4321 interface=nosuch "),
                    HasSubstr("rails=none (network interface \"nosuch\" is not the name "
                              "or prefix of any interface; this host has lo (127.0.0.1")));
}

TEST(EnvTest, ErrorsAreOneLine) {
  Launched env({gradwire_program(), "env"}, {{"RANK", "2"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(env.wait(), 1);
  EXPECT_EQ(env.err(),
            "gradwire env: RANK=\"2\" in the environment: expected a whole number from 0 to 1, as "
            "WORLD_SIZE=2\n");
}

TEST(EnvTest, GradwireRun) {
  Launched run({gradwire_program(), "run", "-n", "2", "--no-prefix", gradwire_program(), "env"});
  EXPECT_EQ(run.wait(), 0);
  const auto lines = lines_of(run.out());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], StartsWith("launcher=gradwire rank=1 world_size=2 local_rank=1 "
                                   "local_world_size=2 master=127.0.0.1:"));
}

TEST(EnvTest, Mpirun) {
  const TemporaryFolder folder;
  Launched run({GRADWIRE_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "3",
                gradwire_program(), "env"},
               {{"XDG_RUNTIME_DIR", folder.path()}});
  EXPECT_EQ(run.wait(), 0) << run.err();
  const auto lines = lines_of(run.out());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[2], AllOf(StartsWith("launcher=mpirun rank=2 world_size=3 local_rank=2 "
                                         "local_world_size=3 master=127.0.0.1:"),
                              HasSubstr("secret=set")));
  EXPECT_EQ(part(lines[0], "master"), part(lines[2], "master"));
}

#ifdef GRADWIRE_TORCHRUN_PYTHON
TEST(EnvTest, Torchrun) {
  Launched run({GRADWIRE_TORCHRUN_PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--no-python", gradwire_program(), "env"});
  EXPECT_EQ(run.wait(), 0) << run.err();
  const auto lines = lines_of(run.out());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], AllOf(StartsWith("launcher=torchrun rank=1 world_size=2 local_rank=1 "
                                         "local_world_size=2 master="),
                              HasSubstr("secret=from the launcher's store")));
}
#endif

TEST(MainTest, HelpNamesTheCommands) {
  Launched help({gradwire_program(), "--help"});
  EXPECT_EQ(help.wait(), 0);
  for (const char* command : {"train", "run", "bench", "schedule", "env"}) {
    EXPECT_THAT(help.out(), HasSubstr(std::string("\n  ") + command + " "));
  }
}

TEST(MainTest, Version) {
  Launched version({gradwire_program(), "--version"});
  EXPECT_EQ(version.wait(), 0);
  EXPECT_THAT(version.out(), StartsWith("gradwire 0."));
}

TEST(MainTest, AnUnknownCommandNamesTheNearest) {
  Launched wrong({gradwire_program(), "bnech"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.err(), HasSubstr("unknown command \"bnech\" (did you mean \"bench\"?)"));
}

TEST(MainTest, CommandsForLibtorchSayHowToGetThem) {
  const TemporaryFolder folder;
  const std::string alone = copy_program(folder.path());
  Launched train({alone, "train", "x.json"});
  EXPECT_EQ(train.wait(), 1);
  EXPECT_THAT(train.err(), AllOf(HasSubstr("gradwire-torch is not in " + (folder / "bin").string()),
                                 HasSubstr("make build")));
}

TEST(MainTest, CommandsForLibtorchAreRunBesideIt) {
  const TemporaryFolder folder;
  const std::string alone = copy_program(folder.path());
  folder.write("bin/gradwire-torch", "#!/bin/sh\necho \"$@\"; exit 6\n", 0755);
  Launched train({alone, "train", "x.json", "-n", "2"});
  EXPECT_EQ(train.wait(), 6);
  EXPECT_EQ(train.out(), "train x.json -n 2\n");
}

TEST(MainTest, AProgramForAnotherPyTorchIsRefused) {
  const TemporaryFolder folder;
  const std::string alone = copy_program(folder.path());
  folder.write("bin/gradwire-torch", "#!/bin/sh\nexit 6\n", 0755);
  Launched train({"env", "GRADWIRE_TORCH_INSTALLED=2.9.1+cpu", alone, "train", "x.json"});
  EXPECT_EQ(train.wait(), 1);
  EXPECT_THAT(train.err(), AllOf(HasSubstr("PyTorch 2.9.1+cpu is installed: install 'torch==2."),
                                 HasSubstr("build gradwire from its sources")));
}

}  // namespace
}  // namespace gradwire::test
