#include "gradwire/report/histogram.h"

#include <algorithm>
#include <cmath>

namespace gradwire::report {

double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {.count = values.size(),
          .min = values.front(),
          .lower_quartile = quantile(values, 0.25),
          .median = quantile(values, 0.5),
          .upper_quartile = quantile(values, 0.75),
          .max = values.back()};
}

namespace {

/// Returns the minimum of 1, 2, 2.5, 5 and 10 times a power of ten that is not below `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 2.5, 5.0}) {
    if (step * power >= value * (1 - 1e-9)) return step * power;
  }
  return 10 * power;
}

}  // namespace

Histogram histogram(std::span<const double> values, const Bins& bins) {
  Histogram result{.bins = bins, .counts = std::vector<std::int64_t>(bins.count)};
  for (const double value : values) {
    const double place = std::floor((value - bins.low) / bins.width());
    if (place < 0) {
      ++result.below;
    } else if (place >= static_cast<double>(bins.count)) {
      ++result.above;
    } else {
      ++result.counts[static_cast<std::size_t>(place)];
    }
  }
  return result;
}

Bins bins_between(double low, double high, std::size_t count) {
  const double range = std::max(high - low, 1e-3 * std::abs(high) + 1e-12);
  const double width = round_up(range / static_cast<double>(count));
  // Snap values to a bin edge that they miss by a rounding error.
  const double first = std::floor(low / width + 1e-6);
  const double bins = std::floor(high / width + 1e-6) + 1 - first;
  return {.low = first * width,
          .high = (first + bins) * width,
          .count = static_cast<std::size_t>(bins)};
}

Bins bins_for(std::vector<double> values, std::size_t count) {
  std::ranges::sort(values);
  return bins_between(values.front(), quantile(values, 0.99), count);
}

}  // namespace gradwire::report
