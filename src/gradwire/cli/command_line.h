#pragma once

#include <cstdio>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/cli/launch/usage_error.h"

namespace gradwire {

/// Parses a command's options. Returns the exit status if nothing is left to do: 0 after --help, 2
/// for a wrong command line, which is reported on stderr. Otherwise nullopt.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "{0}: {1} (see {0} --help)\n", app.get_name(), e.what());
    return 2;
  }
  return std::nullopt;
}

}  // namespace gradwire
