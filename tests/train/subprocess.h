#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gradwire::test {

/// How a program ended, and what it wrote to stdout and stderr together.
struct Finished {
  int status = -1;  ///< 128 + signal if by a signal.
  std::string output;
};

/// Programs that run at the same time; what still runs at the end is killed.
class Subprocesses {
 public:
  Subprocesses() = default;
  ~Subprocesses();
  Subprocesses(const Subprocesses&) = delete;
  Subprocesses& operator=(const Subprocesses&) = delete;

  /// Starts a program with our environment and `variables`.
  void start(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& variables = {});

  /// Waits for all, in the order in which they were started.
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

/// This test program, and the folder where it and gradwire's programs lie.
std::filesystem::path own_program();

}  // namespace gradwire::test
