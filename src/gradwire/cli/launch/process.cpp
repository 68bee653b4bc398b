#include "gradwire/cli/launch/process.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradwire::cli {
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

namespace {

namespace fs = std::filesystem;

/// Reads a file of /proc; returns the part read so far if the process ends meanwhile.
std::string content_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 4096> piece;
  for (ssize_t got; (got = ::read(file.get(), piece.data(), piece.size())) > 0;) {
    content.append(piece.data(), static_cast<std::size_t>(got));
  }
  return content;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [last, problem] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (problem == std::errc() && last == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

/// Returns the parent of a live process; nullopt if it has ended.
std::optional<pid_t> parent_of(pid_t pid) {
  // Format "4711 (name) S 1 ...", where the name may contain any character (proc(5)).
  const std::string stat = content_of(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= stat.size()) return std::nullopt;
  const char state = stat[name_end + 2];
  if (state == 'Z' || state == 'X') return std::nullopt;
  pid_t parent = 0;
  std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
  return parent;
}

void collect(pid_t root, const std::multimap<pid_t, pid_t>& children, const std::set<pid_t>& spared,
             std::vector<pid_t>& found) {
  const auto [first, last] = children.equal_range(root);
  for (auto child = first; child != last; ++child) {
    if (spared.contains(child->second)) continue;
    found.push_back(child->second);
    collect(child->second, children, spared, found);
  }
}

/// Waits until the process has ended, at most `patience`.
void await_end(pid_t pid, Duration patience) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return;
  pollfd item{process.get(), POLLIN, 0};
  ::poll(&item, 1, net::milliseconds_of(patience));
}

/// Returns the processes of this user in whose environment the value of `variable` ends with `run`.
std::vector<pid_t> marked(std::string_view variable, std::string_view run) {
  const std::string name = std::string(1, '\0') + std::string(variable) + "=";
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string environment = '\0' + content_of(fmt::format("/proc/{}/environ", pid));
    const std::size_t mark = environment.find(name);
    if (mark == std::string::npos) continue;
    const std::string_view value = environment.c_str() + mark + name.size();
    if (value.ends_with(run)) found.push_back(pid);
  }
  return found;
}

void kill_marked(std::string_view variable, std::string_view run) {
  // A process may still fork before it is killed, hence several rounds. A process that cannot die
  // (stuck in a driver) must not block the launcher forever, hence a bound.
  for (int round = 0; round < 10; ++round) {
    const std::vector<pid_t> pids = marked(variable, run);
    if (pids.empty()) return;
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids) await_end(pid, std::chrono::seconds(1));
  }
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t root, const std::set<pid_t>& spared) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) {
    if (const std::optional<pid_t> parent = parent_of(pid)) children.emplace(*parent, pid);
  }
  std::vector<pid_t> found;
  collect(root, children, spared, found);
  return found;
}

std::vector<pid_t> processes_of_run(std::string_view run) {
  return marked(kProcessMark, run);
}

void kill_run(std::string_view run) {
  kill_marked(kProcessMark, run);
}

void end_shells(std::string_view run, net::Deadline deadline) {
  for (const pid_t pid : marked(kShellMark, run)) await_end(pid, deadline.left());
  kill_marked(kShellMark, run);
}

}  // namespace gradwire::cli
