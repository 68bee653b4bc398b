#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gradwire/base/unique_fd.h"
#include "gradwire/cli/launch/process.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {

/// A running command whose output is collected. It can tell when the command and all its
/// descendants have exited, because all of them inherit one end of a pipe.
class Launched {
 public:
  /// `variables` are added to this process's environment.
  explicit Launched(const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& variables = {});
  /// Kills all remaining processes of the command.
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  /// Reads until stdout (or stderr) contains `text` this many times. Returns false if the command
  /// ends before.
  bool wait_for_output(const std::string& text, int times) { return wait_for(out_, text, times); }
  bool wait_for_error(const std::string& text, int times) { return wait_for(err_, text, times); }

  void send_signal(int signal);

  /// Stops reading its stdout, and closes it.
  void close_stdout() { process_.out.close(); }

  /// Waits for the end. Returns 0 .. 255, or 128 + signal.
  int wait();

  /// Returns true if no process of the command is left; waits for that for at most `timeout_ms`.
  bool all_gone(int timeout_ms = 0);

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool read_some();
  bool wait_for(const std::string& stream, const std::string& text, int times);

  UniqueFd lifeline_;
  cli::Process process_;
  std::string out_, err_;
  bool ended_ = false;
};

/// Returns the lines of a text without line ends, sorted, because ranks write in any order.
std::vector<std::string> sorted_lines(const std::string& text);

/// Path of the program under test.
std::string gradwire_program();

/// Copies the program to FOLDER/bin, with its library in FOLDER/lib; returns the copy's path.
std::string copy_program(const std::filesystem::path& folder);

/// A command's exit status and output.
struct Outcome {
  int status;
  std::string out;
  std::string err;
};

/// Runs the program under test to its end. `variables` as for Launched.
Outcome run_gradwire(const std::vector<std::string>& arguments,
                     const std::map<std::string, std::string>& variables = {});

/// A script that ends only when it is killed.
inline constexpr const char* kForEver = "while :; do sleep 1000 & wait; done";

/// Returns "gradwire run", these options, and a shell that runs `script`.
std::vector<std::string> run_script(std::vector<std::string> options, const std::string& script);

}  // namespace gradwire::test
