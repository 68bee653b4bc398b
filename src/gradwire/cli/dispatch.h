#pragma once

#include <span>
#include <string_view>

namespace gradwire::cli {

/// A command of a program.
struct Command {
  std::string_view name;
  std::string_view summary;  ///< One line for --help; empty: hidden.
  int (*run)(int argc, char** argv);
};

/// main() of a program with commands: finds the command named by argv[1] and runs it. Handles
/// --help and --version; reports a wrong name with the nearest right one, and an exception as one
/// line on stderr. Returns the exit status: the command's; 1 after an exception, or if standard
/// output could not be written; 2 for a wrong command line.
int dispatch(std::string_view program, std::string_view about, std::span<const Command> commands,
             int argc, char** argv);

}  // namespace gradwire::cli
