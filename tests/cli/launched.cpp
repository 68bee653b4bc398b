#include "tests/cli/launched.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/cli/launch/launch.h"

namespace gradwire::test {
namespace {

void append_from(UniqueFd& fd, std::string& text) {
  std::array<char, 1 << 16> piece;
  const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
  if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
  if (got == 0) fd.close();
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
  return found;
}

}  // namespace

Launched::Launched(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& variables) {
  cli::VariableMap environment = cli::own_variables();
  for (const auto& [name, value] : variables) environment[name] = value;
  std::array<int, 2> ends{-1, -1};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  lifeline_ = UniqueFd(ends[0]);
  const UniqueFd inherited(ends[1]);
  process_ =
      value_or_throw(cli::spawn({arguments, cli::entries_of(environment), false, true, true}));
}

Launched::~Launched() {
  // The launcher's watcher then ends the other processes.
  if (ended_) return;
  ::kill(process_.pid, SIGKILL);
  ::waitpid(process_.pid, nullptr, 0);
}

bool Launched::read_some() {
  std::vector<pollfd> items;
  for (const UniqueFd* fd : {&process_.out, &process_.err}) {
    if (fd->valid()) items.push_back({fd->get(), POLLIN, 0});
  }
  if (items.empty() || ::poll(items.data(), items.size(), 60'000) <= 0) return false;
  if (process_.out.valid()) append_from(process_.out, out_);
  if (process_.err.valid()) append_from(process_.err, err_);
  return true;
}

bool Launched::wait_for(const std::string& stream, const std::string& text, int times) {
  while (count(stream, text) < times) {
    if (!read_some()) return false;
  }
  return true;
}

void Launched::send_signal(int signal) {
  ::kill(process_.pid, signal);
}

int Launched::wait() {
  while (read_some()) continue;
  int status = 0;
  ::waitpid(process_.pid, &status, 0);
  ended_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Launched::all_gone(int timeout_ms) {
  // No process writes to it, so that the only event is its closing.
  pollfd item{lifeline_.get(), POLLIN, 0};
  return ::poll(&item, 1, timeout_ms) > 0;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string gradwire_program() {
  return GRADWIRE_PROGRAM;
}

std::string copy_program(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const fs::path program = gradwire_program();
  const fs::path copy = folder / "bin" / program.filename();
  fs::create_directories(copy.parent_path());
  fs::copy_file(program, copy);
  fs::create_symlink(program.parent_path().parent_path() / "lib", folder / "lib");
  return copy;
}

Outcome run_gradwire(const std::vector<std::string>& arguments,
                     const std::map<std::string, std::string>& variables) {
  std::vector<std::string> command{gradwire_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Launched launched(command, variables);
  const int status = launched.wait();
  return {status, launched.out(), launched.err()};
}

std::vector<std::string> run_script(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> arguments{gradwire_program(), "run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

}  // namespace gradwire::test
