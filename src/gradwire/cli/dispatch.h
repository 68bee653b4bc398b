#pragma once

#include <span>
#include <string_view>

namespace gradwire {

/// One word that may follow a program's name.
struct Command {
  std::string_view name;
  std::string_view summary;  ///< One line for --help; empty: not listed.
  int (*run)(int argc, char** argv);
};

/// What main() of a program with commands does: finds the command that argv[1] names and runs it;
/// answers --help and --version, and a wrong name with the nearest right one. An exception ends as
/// one line on stderr. Returns the exit status: the command's, 1 after an exception or if standard
/// output could not be written, 2 for a wrong command line.
int dispatch(std::string_view program, std::string_view about, std::span<const Command> commands,
             int argc, char** argv);

}  // namespace gradwire
