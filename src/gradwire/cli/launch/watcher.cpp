#include "gradwire/cli/launch/watcher.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

/// Timeout for remote shells: they end when the other host has killed its processes of the run.
constexpr Duration kShellTimeout = std::chrono::seconds(5);

/// Returns true if the launcher reported a regular end; on EOF it is dead.
bool launcher_ended_well(int lifeline) {
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(lifeline, &word, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

[[noreturn]] void watch(int lifeline, const std::string& run) {
  // A new session, so that ^C at the terminal does not reach the watcher; it also closes the
  // standard streams, so that a reader of the launcher's output sees EOF when the launcher ends.
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  if (!launcher_ended_well(lifeline)) {
    kill_run(run);
    const SteadyClock clock;
    end_shells(run, net::Deadline::after(clock, kShellTimeout));
  }
  ::_exit(0);
}

}  // namespace

Watcher::Watcher(const std::string& run) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Exception(ErrorKind::system, std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  const UniqueFd watched(ends[0]);
  lifeline_ = UniqueFd(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) {
    throw Exception(ErrorKind::system,
                    std::string("cannot start a process: ") + std::strerror(errno));
  }
  if (pid_ == 0) {
    lifeline_.close();
    watch(watched.get(), run);
  }
}

void Watcher::release() {
  [[maybe_unused]] const ssize_t ignored = ::write(lifeline_.get(), "q", 1);
}

Watcher::~Watcher() {
  lifeline_.close();
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace gradwire::cli
