#include "tests/train/subprocess.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace gradwire::test {
namespace {

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t size = 0; (size = ::read(fd, piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

void Subprocesses::start(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& variables) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  auto arguments = command;
  auto entries = environment_with(variables);
  Running running{.output = pipe[0]};
  const int error = posix_spawnp(&running.pid, command[0].c_str(), &actions, nullptr,
                                 pointers_to(arguments).data(), pointers_to(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  if (error != 0) {
    ::close(pipe[0]);
    throw std::runtime_error("cannot start " + command[0]);
  }
  running_.push_back(running);
}

void Subprocesses::fork(const std::function<int()>& body) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::dup2(pipe[1], STDERR_FILENO);
    int status = 1;
    try {
      status = body();
    } catch (const std::exception& e) {
      std::cout << e.what() << std::endl;
    }
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(status);
  }
  ::close(pipe[1]);
  if (child < 0) {
    ::close(pipe[0]);
    throw std::runtime_error("cannot fork");
  }
  running_.push_back({.pid = child, .output = pipe[0]});
}

std::vector<Finished> Subprocesses::wait() {
  std::vector<Finished> all;
  for (auto& running : running_) {
    Finished finished{.output = read_all(running.output)};
    int status = 0;
    ::waitpid(running.pid, &status, 0);
    running.pid = -1;
    ::close(running.output);
    finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    all.push_back(std::move(finished));
  }
  running_.clear();
  return all;
}

Subprocesses::~Subprocesses() {
  for (const auto& running : running_) {
    if (running.pid < 0) continue;
    ::kill(running.pid, SIGKILL);
    ::waitpid(running.pid, nullptr, 0);
    ::close(running.output);
  }
}

Finished run(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& variables) {
  Subprocesses one;
  one.start(command, variables);
  return one.wait().front();
}

std::filesystem::path own_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

}  // namespace gradwire::test
