#include "gradwire/cli/dispatch.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/cli/command_line.h"

namespace gradwire::cli {
namespace {

void print_help(std::string_view program, std::string_view about,
                std::span<const Command> commands) {
  fmt::print("{}\n\nUsage: {} COMMAND [OPTIONS]\n\nCommands:\n", about, program);
  for (const Command& command : commands) {
    fmt::print("  {:10} {}\n", command.name, command.summary);
  }
  fmt::print("\n{} COMMAND --help describes a command; {} --version prints the version.\n", program,
             program);
}

int refuse(std::string_view program, std::string_view name, std::span<const Command> commands) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) names.push_back(command.name);
  fmt::print(stderr, "{}: {}\n", program, unknown_name("command", name, names));
  return 2;
}

/// Flushes stdout, so that a full disk does not look like success. Returns `status`, or 1 instead
/// of 0 if stdout could not be written.
int flushed(std::string_view program, int status) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written) return status;
  fmt::print(stderr, "{}: cannot write to standard output{}{}\n", program, errno != 0 ? ": " : "",
             errno != 0 ? std::strerror(errno) : "");
  return status != 0 ? status : 1;
}

/// Returns the error text, with a remedy where the standard library's text has none.
std::string words_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return "out of memory: use smaller sizes, or raise the limit (ulimit -v, the container's or "
           "the job's)";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system && system->code() == std::errc::resource_unavailable_try_again) {
    return "cannot start another thread: raise the limit (ulimit -u, ulimit -v, the container's or "
           "the job's)";
  }
  return error.what();
}

int run_guarded(std::string_view program, const Command& command, int argc, char** argv) {
  try {
    return command.run(argc, argv);
  } catch (const std::exception& e) {
    std::fflush(stdout);
    // If standard output cannot be written, flushed() reports that, and nothing else matters.
    if (std::ferror(stdout) == 0)
      fmt::print(stderr, "{} {}: {}\n", program, command.name, words_of(e));
    return dynamic_cast<const UsageError*>(&e) ? 2 : 1;
  }
}

int find_and_run(std::string_view program, std::string_view about,
                 std::span<const Command> commands, int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(program, about, commands);
    return argc > 1 ? 0 : 2;
  }
  if (name == "--version") {
    fmt::print("{} {}\n", program, GRADWIRE_VERSION);
    return 0;
  }
  for (const Command& command : commands) {
    if (command.name == name) return run_guarded(program, command, argc - 1, argv + 1);
  }
  return refuse(program, name, commands);
}

}  // namespace

int dispatch(std::string_view program, std::string_view about, std::span<const Command> commands,
             int argc, char** argv) {
  return flushed(program, find_and_run(program, about, commands, argc, argv));
}

}  // namespace gradwire::cli
