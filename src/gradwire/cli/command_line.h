#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/suggest.h"

namespace gradwire::cli {

/// The options that users of other launchers try, and ours.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOtherLaunchers{{
    {"-H", "--hosts"},
    {"--host", "--hosts"},
    {"--nproc", "-n"},
    {"--nproc-per-node", "-n"},
    {"--nproc_per_node", "-n"},
}};

/// Returns "; did you mean --hosts?" for an option that `app` lacks, or "".
inline std::string nearest_option(const CLI::App& app, std::string_view given) {
  for (const auto& [theirs, ours] : kOtherLaunchers) {
    if (given == theirs && app.get_option_no_throw(std::string(ours)) != nullptr)
      return fmt::format("; did you mean {}?", ours);
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const auto nearest = nearest_name(given, candidates);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

/// Reports the first of the arguments that `app` does not know. Returns the exit status, 2. `hint`
/// may add a remedy for an option.
inline int report_unexpected(const CLI::App& app, const std::vector<std::string>& arguments,
                             const std::function<std::string(std::string_view)>& hint = {}) {
  const auto option = std::ranges::find_if(
      arguments, [](const std::string& argument) { return argument.starts_with('-'); });
  const std::string name = option == arguments.end() ? "" : option->substr(0, option->find('='));
  std::string remedy = name.empty() ? "" : nearest_option(app, name);
  if (!name.empty() && hint && remedy.empty()) remedy = hint(name);
  if (name.empty() && app.get_option_no_throw("--hosts") != nullptr && app.count("--hosts") > 0) {
    remedy = "; hosts are one argument: --hosts a,b,c";
  }
  fmt::print(stderr, "{0}: {1} {2}{3} (see {0} --help)\n", app.get_name(),
             name.empty() ? "unexpected argument" : "unknown option",
             name.empty() ? arguments.front() : name, remedy);
  return 2;
}

/// Parses a command's options. Returns the exit status if nothing is left to do: 0 after --help, 2
/// for a wrong command line, which is reported on stderr. Otherwise nullopt.
inline std::optional<int> parse_command_line(
    CLI::App& app, int argc, char** argv,
    const std::function<std::string(std::string_view)>& hint = {}) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ExtrasError&) {
    return report_unexpected(app, app.remaining(), hint);
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
