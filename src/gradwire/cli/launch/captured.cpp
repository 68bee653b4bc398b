#include "gradwire/cli/launch/captured.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

/// Appends the available bytes to `text`; closes `fd` at end of file or on error.
void take(UniqueFd& fd, std::string& text) {
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || errno != EAGAIN) fd.close();
    return;
  }
}

/// Waits at most `wait` for output on stdout or stderr, and reads it.
void take_some(Process& process, Captured& captured, Duration wait) {
  std::array<pollfd, 2> ends{pollfd{process.out.valid() ? process.out.get() : -1, POLLIN, 0},
                             pollfd{process.err.valid() ? process.err.get() : -1, POLLIN, 0}};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  ::poll(ends.data(), ends.size(), static_cast<int>(ms));
  if (ends[0].revents != 0) take(process.out, captured.out);
  if (ends[1].revents != 0) take(process.err, captured.err);
}

int status_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<Captured> run_captured(const std::vector<std::string>& command, Duration limit) {
  const SteadyClock clock;
  const Time deadline = clock.now() + limit;
  auto process = spawn({.arguments = command, .environment = entries_of(own_variables())});
  if (!process) return tl::unexpected(process.error());
  Captured captured;
  while (process->out.valid() || process->err.valid()) {
    const Time now = clock.now();
    if (now >= deadline) {
      ::kill(-process->pid, SIGKILL);
      status_of(process->pid);
      return failure(ErrorKind::timeout, fmt::format("{} did not end within {}", command.front(),
                                                     format_duration(limit)));
    }
    take_some(*process, captured, deadline - now);
  }
  captured.status = status_of(process->pid);
  return captured;
}

}  // namespace gradwire::cli
