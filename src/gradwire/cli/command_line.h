#pragma once

#include <optional>

#include <CLI/CLI.hpp>

namespace gradwire {

/// Reads a command's options. If there is nothing left to do (--help, or a wrong command line,
/// which is explained on stderr), the exit status with which to end: 0 or 2.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace gradwire
