#include "gradwire/cli/dispatch.h"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"

namespace gradwire {
namespace {

void print_help(std::string_view program, std::string_view about,
                std::span<const Command> commands) {
  fmt::print("{}\n\nUsage: {} COMMAND [OPTIONS]\n\nCommands:\n", about, program);
  for (const Command& command : commands) {
    fmt::print("  {:10} {}\n", command.name, command.summary);
  }
  fmt::print("\n{} COMMAND --help says more about each; {} --version prints the version.\n",
             program, program);
}

int refuse(std::string_view program, std::string_view name, std::span<const Command> commands) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) names.push_back(command.name);
  fmt::print(stderr, "{}: {}\n", program, unknown_name("command", name, names));
  return 2;
}

int run_guarded(std::string_view program, const Command& command, int argc, char** argv) {
  try {
    return command.run(argc, argv);
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "{} {}: {}\n", program, command.name, e.what());
    return 1;
  }
}

}  // namespace

int dispatch(std::string_view program, std::string_view about, std::span<const Command> commands,
             int argc, char** argv) {
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

}  // namespace gradwire
