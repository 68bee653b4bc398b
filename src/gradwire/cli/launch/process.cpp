#include "gradwire/cli/launch/process.h"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradwire {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void set_non_blocking(const UniqueFd& fd) {
  if (fd.valid()) ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipes {
  Pipe in, out, err;
  Pipe failure;  ///< Close-on-exec: EOF if exec succeeds, else carries errno.
};

/// From here to exec everything runs in the child: only async-signal-safe calls.
void reset_signals() {
  // A shell without job control starts background commands with SIGINT ignored. Ranks must still
  // react to a SIGINT that the launcher passes on.
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void connect_streams(const SpawnRequest& request, const Pipes& pipes) {
  const int in = request.pipe_stdin ? pipes.in.read.get() : ::open("/dev/null", O_RDONLY);
  ::dup2(in, STDIN_FILENO);
  if (!request.pipe_stdin) ::close(in);
  if (!request.pipe_output) return;
  ::dup2(pipes.out.write.get(), STDOUT_FILENO);
  ::dup2(pipes.err.write.get(), STDERR_FILENO);
}

[[noreturn]] void become(const SpawnRequest& request, const Pipes& pipes, char** arguments,
                         char** environment, pid_t parent) {
  request.own_session ? ::setsid() : ::setpgid(0, 0);
  if (request.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
  }
  connect_streams(request, pipes);
  reset_signals();
  ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(pipes.failure.write.get(), &error, sizeof error);
  ::_exit(127);
}

/// Returns the errno of a failed exec, or 0: on success the pipe is closed by exec.
int exec_error(Pipe& failure) {
  failure.write.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure.read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

tl::unexpected<Error> cannot_start(const SpawnRequest& request, int error) {
  return failure(ErrorKind::system, fmt::format("cannot start {}: {}", request.arguments.front(),
                                                std::strerror(error)));
}

}  // namespace

Result<Process> spawn(const SpawnRequest& request) {
  Pipes pipes{request.pipe_stdin ? make_pipe() : Pipe{}, request.pipe_output ? make_pipe() : Pipe{},
              request.pipe_output ? make_pipe() : Pipe{}, make_pipe()};
  const bool made = pipes.failure.read.valid() && (!request.pipe_stdin || pipes.in.read.valid()) &&
                    (!request.pipe_output || (pipes.out.read.valid() && pipes.err.read.valid()));
  if (!made) return cannot_start(request, errno);
  const std::vector<char*> arguments = pointers_to(request.arguments);
  const std::vector<char*> environment = pointers_to(request.environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return cannot_start(request, errno);
  if (pid == 0) {
    become(request, pipes, const_cast<char**>(arguments.data()),
           const_cast<char**>(environment.data()), parent);
  }
  // Waits for exec, before which the child has made its own process group or session. The parent
  // must not call setpgid() too: setsid() fails for a process group leader.
  if (const int error = exec_error(pipes.failure)) {
    ::waitpid(pid, nullptr, 0);
    return cannot_start(request, error);
  }
  Process process{pid, std::move(pipes.in.write), std::move(pipes.out.read),
                  std::move(pipes.err.read)};
  for (const UniqueFd* fd : {&process.in, &process.out, &process.err}) set_non_blocking(*fd);
  return process;
}

std::string own_executable() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) throw Exception(ErrorKind::system, "cannot find the running program in /proc");
  return std::string(path.data(), static_cast<std::size_t>(size));
}

}  // namespace gradwire
