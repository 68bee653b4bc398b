#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire::cli {

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

/// A command line that cannot be executed as given: the program exits with status 2.
class UsageError : public Exception {
 public:
  explicit UsageError(const std::string& message)
      : Exception(ErrorKind::invalid_argument, message) {}
};

/// Returns the result of `read`, which parses the command line or a file that it names. Rethrows
/// its Exception(invalid_argument) as UsageError.
template <class Read>
auto read_arguments(const Read& read) {
  try {
    return read();
  } catch (const Exception& e) {
    if (e.kind() != ErrorKind::invalid_argument) throw;
    throw UsageError(e.what());
  }
}

}  // namespace gradwire::cli
