#include <array>
#include <csignal>
#include <stdexcept>

#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/cli/launch/launch.h"
#include "tests/cli/launched.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;

[[noreturn]] void become_command(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  ::_exit(127);
}

/// Runs a command in the foreground of its own terminal, without input. If it waits for input it is
/// killed.
Outcome at_a_terminal(const std::vector<std::string>& command) {
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (pid < 0) throw std::runtime_error("no terminal");
  if (pid == 0) become_command(command);
  const UniqueFd terminal(master);
  Outcome outcome{};
  std::array<char, 4096> piece{};
  ssize_t got = 0;
  do {  // The end of a terminal is reported as an error.
    pollfd item{terminal.get(), POLLIN, 0};
    if (::poll(&item, 1, kPatienceMs) <= 0) ::kill(pid, SIGKILL);
    got = ::read(terminal.get(), piece.data(), piece.size());
    if (got > 0) outcome.out.append(piece.data(), static_cast<std::size_t>(got));
  } while (got > 0);
  int status = 0;
  ::waitpid(pid, &status, 0);
  outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

// A remote shell that asks on the terminal, as ssh does with an unknown host key.
constexpr const char* kAsking = "#!/bin/sh\nread answer </dev/tty && exit 0\nexit 9\n";

TEST(TerminalTest, ARemoteShellWithAQuestionFailsAtOnce) {
  const TemporaryFolder folder;
  const std::string rsh = folder.write("rsh", kAsking, 0755);
  const Outcome run =
      at_a_terminal({gradwire_program(), "run", "--hosts", "a", "--rsh", rsh, "--", "true"});
  EXPECT_EQ(run.status, 9) << run.out;
  EXPECT_THAT(run.out, AllOf(HasSubstr("/dev/tty"), HasSubstr("could not be started")));
}

TEST(TerminalTest, TheDoctorNamesARemoteShellWithAQuestion) {
  const TemporaryFolder folder;
  const std::string rsh = folder.write("rsh", kAsking, 0755);
  const Outcome doctor =
      at_a_terminal({gradwire_program(), "doctor", "--hosts", "a.invalid", "--rsh", rsh});
  EXPECT_EQ(doctor.status, 1) << doctor.out;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("failed with status 9"), HasSubstr("/dev/tty")));
}

TEST(SpawnTest, ASessionOfItsOwnIsOneGroupToKill) {
  const cli::Process process =
      value_or_throw(cli::spawn({.arguments = {"sh", "-c", "sleep 1000 & echo started; wait"},
                                 .environment = cli::entries_of(cli::own_variables()),
                                 .own_session = true}));
  EXPECT_EQ(::getsid(process.pid), process.pid);
  EXPECT_EQ(::getpgid(process.pid), process.pid);
  pollfd item{process.out.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&item, 1, kPatienceMs), 1);
  std::array<char, 64> piece{};
  EXPECT_EQ(::read(process.out.get(), piece.data(), piece.size()), 8);
  EXPECT_EQ(::kill(-process.pid, SIGKILL), 0);
  ::waitpid(process.pid, nullptr, 0);
  ASSERT_EQ(::poll(&item, 1, kPatienceMs), 1);  // The shell's child held it open too.
  EXPECT_EQ(::read(process.out.get(), piece.data(), piece.size()), 0);
}

}  // namespace
}  // namespace gradwire::test
