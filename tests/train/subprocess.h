#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gradwire::test {

/// A program's exit status, and its combined stdout and stderr.
struct Finished {
  int status = -1;  ///< 128 + signal if ended by a signal.
  std::string output;
};

/// Programs that run concurrently; the destructor kills those still running.
class Subprocesses {
 public:
  Subprocesses() = default;
  ~Subprocesses();
  Subprocesses(const Subprocesses&) = delete;
  Subprocesses& operator=(const Subprocesses&) = delete;

  /// Starts a program with our environment plus `variables`.
  void start(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& variables = {});

  /// Forks a process that runs the function and exits with its result; after an exception it prints
  /// its message and exits with status 1. Saves the time that libtorch takes to load. This process
  /// must have no other thread.
  void fork(const std::function<int()>& body);

  /// Waits for all programs; returns results in the order of start().
  std::vector<Finished> wait();

 private:
  struct Running {
    int pid = -1;
    int output = -1;
  };
  std::vector<Running> running_;
};

/// Runs one program to its end.
Finished run(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& variables = {});

/// Path of this test program; gradwire's programs are in the same folder.
std::filesystem::path own_program();

}  // namespace gradwire::test
