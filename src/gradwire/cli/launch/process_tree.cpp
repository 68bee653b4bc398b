#include "gradwire/cli/launch/process_tree.h"

#include <array>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gradwire/base/unique_fd.h"

namespace gradwire {
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
  ::poll(&item, 1, milliseconds_of(patience));
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

void end_shells(std::string_view run, Deadline deadline) {
  for (const pid_t pid : marked(kShellMark, run)) await_end(pid, deadline.left());
  kill_marked(kShellMark, run);
}

}  // namespace gradwire
