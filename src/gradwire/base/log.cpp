#include "gradwire/base/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include <fmt/chrono.h>

#include "gradwire/base/clock.h"

namespace gradwire {
namespace {

LogSink& own_sink() {
  static LogSink sink;
  return sink;
}

void write(std::string_view level, std::string_view text) {
  if (own_sink()) return own_sink()(text);
  const std::time_t now = std::chrono::floor<std::chrono::seconds>(time_of_day()).count();
  // One write, so that lines of several threads and processes do not mix.
  const auto line = fmt::format("[{:%F %T}] [{}] {}\n", fmt::localtime(now), level, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log_warning(std::string_view text) {
  write("warning", text);
}

void log_error(std::string_view text) {
  write("error", text);
}

void set_log_sink(LogSink sink) {
  own_sink() = std::move(sink);
}

}  // namespace gradwire
