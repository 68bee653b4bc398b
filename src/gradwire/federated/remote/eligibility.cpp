#include "gradwire/federated/remote/eligibility.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/net/deadline.h"

namespace gradwire::federated {
namespace {

/// Milliseconds between looks at a command, before Linux 5.3.
constexpr int kWithoutPidfd = 10;

std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

std::string verdict_on(int status, const std::string& command) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFEXITED(status))
    return fmt::format("{} exits with status {}", command, WEXITSTATUS(status));
  return fmt::format("{} was ended by signal {}", command, WTERMSIG(status));
}

}  // namespace

std::string why_unplugged(const std::filesystem::path& power_supplies) {
  std::error_code none;
  int outlets = 0;
  std::string discharging;
  for (const auto& supply : std::filesystem::directory_iterator(power_supplies, none)) {
    const std::string type = first_word(supply.path() / "type");
    if (first_word(supply.path() / "scope") == "Device") continue;
    if (type == "Battery") {
      if (first_word(supply.path() / "status") == "Discharging")
        discharging = supply.path().filename().string();
    } else if (type == "Mains" || type.starts_with("USB")) {
      if (first_word(supply.path() / "online") == "1") return "";
      ++outlets;
    }
  }
  if (outlets > 0) return fmt::format("no power supply of {} is online", power_supplies.string());
  return discharging.empty() ? "" : fmt::format("the battery {} is discharging", discharging);
}

Eligibility::Eligibility(const Clock& clock, Options options)
    : clock_(clock), options_(std::move(options)) {}

Eligibility::~Eligibility() {
  if (running_) end_command();
}

const std::string& Eligibility::check_now() {
  checked_.reset();
  return check();
}

const std::string& Eligibility::check() {
  const Time now = clock_.now();
  const bool is_first = !checked_;
  if (running_ && !collect(is_first)) return reason_;
  if (!is_first && now < after(*checked_, options_.interval)) return reason_;
  checked_ = now;
  reason_ = options_.plugged ? why_unplugged(options_.power_supplies) : "";
  if (reason_.empty() && options_.test && !options_.test()) reason_ = "its program says no";
  if (options_.command.empty()) return reason_;
  start();
  if (running_) collect(is_first);
  if (reason_.empty()) reason_ = of_command_;
  return reason_;
}

/// The command, in a process group of its own, without input and output.
void Eligibility::start() {
  const pid_t process = ::fork();
  if (process < 0) {
    of_command_ = fmt::format("cannot start {}: {}", options_.command, std::strerror(errno));
    return;
  }
  if (process == 0) {
    ::setpgid(0, 0);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(nothing, STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", options_.command.c_str(), nullptr);
    ::_exit(127);
  }
  ::setpgid(process, process);  // Whoever is first.
  running_ = Running{process, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))),
                     after(clock_.now(), options_.command_time)};
}

/// Returns true once the command has ended, or was ended.
bool Eligibility::collect(bool waits) {
  const net::Deadline until(clock_, running_->until);
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(running_->process, &status, WNOHANG)) == 0) {
    if (until.passed()) {
      end_command();
      of_command_ = fmt::format("{} did not end within {:.0f} s", options_.command,
                                seconds(options_.command_time));
      return true;
    }
    if (!waits) return false;
    const int left = net::milliseconds_of(until.left());
    pollfd end{running_->end.get(), POLLIN, 0};
    ::poll(&end, 1, end.fd >= 0 ? left : std::min(left, kWithoutPidfd));
  }
  running_.reset();
  of_command_ = ended > 0 ? verdict_on(status, options_.command)
                          : fmt::format("{} left no exit status: this process ignores SIGCHLD",
                                        options_.command);
  return true;
}

void Eligibility::end_command() {
  ::kill(-running_->process, SIGKILL);
  ::waitpid(running_->process, nullptr, 0);
  running_.reset();
}

}  // namespace gradwire::federated
