#include "gradwire/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace gradwire {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 14> kByteUnits{{{"", 1},
                                           {"B", 1},
                                           {"K", 0x1p10},
                                           {"KB", 0x1p10},
                                           {"KiB", 0x1p10},
                                           {"k", 0x1p10},
                                           {"M", 0x1p20},
                                           {"MB", 0x1p20},
                                           {"MiB", 0x1p20},
                                           {"m", 0x1p20},
                                           {"G", 0x1p30},
                                           {"GB", 0x1p30},
                                           {"GiB", 0x1p30},
                                           {"g", 0x1p30}}};

/// In nanoseconds.
constexpr std::array<Unit, 6> kTimeUnits{
    {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 6e10}}};

/// In bytes per second.
constexpr std::array<Unit, 19> kRateUnits{{{"b/s", 0.125},
                                           {"Kb/s", 125},
                                           {"Mb/s", 125e3},
                                           {"Gb/s", 125e6},
                                           {"Kbit", 125},
                                           {"Mbit", 125e3},
                                           {"Gbit", 125e6},
                                           {"Gbit/s", 125e6},
                                           {"Mbit/s", 125e3},
                                           {"bps", 0.125},
                                           {"Kbps", 125},
                                           {"kbps", 125},
                                           {"Mbps", 125e3},
                                           {"Gbps", 125e6},
                                           {"Kbit/s", 125},
                                           {"B/s", 1},
                                           {"KB/s", 1e3},
                                           {"MB/s", 1e6},
                                           {"GB/s", 1e9}}};

std::optional<double> factor_of(std::string_view unit, std::span<const Unit> units) {
  for (const Unit& known : units) {
    if (known.name == unit) return known.factor;
  }
  return std::nullopt;
}

/// Parses a non-negative number with a unit; returns it in the base unit.
std::optional<double> parse(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || number < 0 || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto factor = factor_of(unit, units);
  if (!factor) return std::nullopt;
  return number * *factor;
}

tl::unexpected<Error> not_understood(std::string_view what, std::string_view text,
                                     std::string_view examples) {
  return failure(ErrorKind::invalid_argument,
                 fmt::format("\"{}\" is not {}: write for example {}", text, what, examples));
}

/// `value` in the largest of `units` (ascending) that leaves at least 1 before the point.
std::string in_largest(double value, std::span<const Unit> units) {
  Unit chosen = units.front();
  for (const Unit& unit : units) {
    if (value >= unit.factor) chosen = unit;
  }
  return fmt::format("{:.4g} {}", value / chosen.factor, chosen.name);
}

}  // namespace

Result<std::size_t> parse_bytes(std::string_view text) {
  const auto bytes = parse(text, kByteUnits);
  // Above 2^53 a double cannot represent every integer.
  if (!bytes || *bytes > 0x1p53 || *bytes != std::floor(*bytes)) {
    return not_understood("a number of bytes", text, "4, 64K, 1M or 100000000");
  }
  return static_cast<std::size_t>(*bytes);
}

Result<Duration> parse_duration(std::string_view text) {
  if (text == "0") return Duration::zero();
  const auto nanoseconds = parse(text, kTimeUnits);
  if (!nanoseconds || *nanoseconds > 0x1p62) {
    return not_understood("a duration", text, "50us, 1.5ms or 2s");
  }
  return Duration(std::llround(*nanoseconds));
}

Result<double> parse_rate(std::string_view text) {
  const auto rate = parse(text, kRateUnits);
  if (!rate || *rate <= 0) {
    return not_understood("a rate above zero", text, "10Gb/s, 100Mb/s or 1.25GB/s");
  }
  return *rate;
}

std::string format_bytes(std::size_t bytes) {
  static constexpr std::array<Unit, 4> units{
      {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}};
  return in_largest(static_cast<double>(bytes), units);
}

std::string format_duration(Duration duration) {
  static constexpr std::array<Unit, 4> units{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  return in_largest(static_cast<double>(duration.count()), units);
}

std::string format_rate(double bytes_per_second) {
  static constexpr std::array<Unit, 4> units{
      {{"b/s", 1}, {"Kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}}};
  return in_largest(8 * bytes_per_second, units);
}

}  // namespace gradwire
