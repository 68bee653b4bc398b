#include "gradwire/bootstrap/failure_report.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/unique_fd.h"
#include "gradwire/bootstrap/job.h"

namespace gradwire::bootstrap {

namespace {

void append_line(const std::string& path, std::string line) noexcept {
  std::ranges::replace(line, '\n', ' ');
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file.valid()) return;
  line.push_back('\n');
  [[maybe_unused]] const ssize_t written = ::write(file.get(), line.data(), line.size());
}

void append_to_own_file(std::string_view line) {
  if (const auto path = process_environment()(kReportVariable)) {
    append_line(*path, std::string(line));
  }
}

std::optional<FailureReport> parse_report(std::string_view line) {
  FailureReport report;
  const auto* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data(), end, report.cause);
  if (error != std::errc() || rest == end || *rest != ' ') return std::nullopt;
  report.text.assign(rest + 1, end);
  return report;
}

/// "optional 2 5".
std::optional<OptionalRanks> parse_optional(std::string_view line) {
  if (!line.starts_with(kOptional)) return std::nullopt;
  std::istringstream numbers{std::string(line.substr(kOptional.size()))};
  OptionalRanks read;
  return numbers >> read.first >> read.end ? std::optional(read) : std::nullopt;
}

std::vector<std::string_view> lines_of(std::string_view contents) {
  std::vector<std::string_view> lines;
  while (!contents.empty()) {
    const std::size_t end = std::min(contents.find('\n'), contents.size());
    lines.push_back(contents.substr(0, end));
    contents.remove_prefix(std::min(end + 1, contents.size()));
  }
  return lines;
}

}  // namespace

void write_report(const std::string& path, const FailureReport& report) noexcept {
  append_line(path, fmt::format("{} {}", report.cause, report.text));
}

std::optional<FailureReport> first_report(std::string_view contents) {
  for (const std::string_view line : lines_of(contents)) {
    if (auto report = parse_report(line)) return report;
  }
  return std::nullopt;
}

SavingNote::SavingNote() {
  append_to_own_file(kSaving);
}

SavingNote::~SavingNote() {
  append_to_own_file("saved");
}

void note_optional(OptionalRanks ranks) {
  append_to_own_file(fmt::format("{} {} {}", kOptional, ranks.first, ranks.end));
}

OptionalRanks optional_ranks(std::string_view contents) {
  OptionalRanks last;
  for (const std::string_view line : lines_of(contents)) {
    if (const auto read = parse_optional(line)) last = *read;
  }
  return last;
}

bool is_saving(std::string_view contents) {
  if (!contents.ends_with('\n')) return false;
  contents.remove_suffix(1);
  return contents.substr(contents.rfind('\n') + 1) == kSaving;
}

}  // namespace gradwire::bootstrap
