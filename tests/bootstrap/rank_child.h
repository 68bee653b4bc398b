#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/net/socket.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::test {

/// A rank in a child process, which reports how its start ended. Must be created while the test has
/// one thread.
class RankChild {
 public:
  /// `before`: called first in the child, for example to lower a limit.
  explicit RankChild(const bootstrap::Job& job, Duration timeout = std::chrono::seconds(60),
                     const std::function<void()>& before = {}) {
    std::array<int, 2> ends = {-1, -1};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      if (before) before();
      run(job, timeout, ends[1]);
    }
    ::close(ends[1]);
    said_ = net::Socket(ends[0]);
  }

  ~RankChild() { kill(); }
  RankChild(const RankChild&) = delete;
  RankChild& operator=(const RankChild&) = delete;

  /// Sends SIGKILL and waits for the child.
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  /// Waits for the child; returns "connected", or its error message.
  std::string outcome() {
    std::string text;
    std::array<char, 4096> piece;
    for (ssize_t got; (got = ::read(said_.descriptor(), piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  [[noreturn]] static void run(const bootstrap::Job& job, Duration timeout, int out) {
    const auto mesh = bootstrap::connect(kNetwork, job, within(timeout));
    const std::string text = mesh ? "connected" : mesh.error().message;
    [[maybe_unused]] const ssize_t written = ::write(out, text.data(), text.size());
    ::_exit(0);
  }

  pid_t pid_ = -1;
  net::Socket said_;
};

}  // namespace gradwire::test
