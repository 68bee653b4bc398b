#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace gradwire {

/// Writes a line to stderr, with time and level. Thread-safe.
void log_warning(std::string_view text);
void log_error(std::string_view text);

template <class First, class... Values>
void log_warning(fmt::format_string<First, Values...> format, First&& first, Values&&... values) {
  log_warning(std::string_view(
      fmt::format(format, std::forward<First>(first), std::forward<Values>(values)...)));
}

template <class First, class... Values>
void log_error(fmt::format_string<First, Values...> format, First&& first, Values&&... values) {
  log_error(std::string_view(
      fmt::format(format, std::forward<First>(first), std::forward<Values>(values)...)));
}

/// Takes lines in place of stderr, possibly from several threads at once.
using LogSink = std::function<void(std::string_view line)>;

/// Sets the sink; an empty one restores stderr. Not while other threads log.
void set_log_sink(LogSink sink);

}  // namespace gradwire
