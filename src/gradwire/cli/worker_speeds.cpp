#include "gradwire/cli/worker_speeds.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>

#include "gradwire/base/refuse.h"

namespace gradwire::cli {
namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

}  // namespace

CLI::Option& declare_slow(CLI::App& app, std::vector<std::string>& given, const std::string& help) {
  return *app.add_option("--slow", given,
                         help +
                             ": RANK:FACTOR multiplies the compute times of a worker, and "
                             "RANK:FACTOR:SHARE this share of them, at random; a comma list")
              ->delimiter(',');
}

std::map<Rank, emulation::SlowWorker> slow_workers(const std::vector<std::string>& given) {
  std::map<Rank, emulation::SlowWorker> slow;
  for (const std::string& text : given) {
    std::vector<std::string> fields;
    std::istringstream stream(text);
    for (std::string field; std::getline(stream, field, ':');) fields.push_back(field);
    fields.resize(std::max<std::size_t>(fields.size(), 2));
    if (fields.size() == 2) fields.emplace_back("1");
    const auto rank = number_in<Rank>(fields[0]);
    const auto factor = number_in<double>(fields[1]);
    const auto share = number_in<double>(fields[2]);
    if (fields.size() > 3 || !rank || *rank < 0 || !factor || !(*factor > 0) || !share ||
        !(*share > 0 && *share <= 1)) {
      refuse("--slow {}: expected RANK:FACTOR, such as 3:4, or RANK:FACTOR:SHARE, such as 3:5:0.1",
             text);
    }
    slow[*rank] = {.factor = *factor, .share = *share};
  }
  return slow;
}

}  // namespace gradwire::cli
