#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::report {

/// Minimum, maximum and quantiles of values. Quantiles use linear interpolation (Hyndman and Fan,
/// "Sample quantiles in statistical packages", The American Statistician 50(4), 1996, type 7, as
/// numpy's default).
struct Spread {
  std::size_t count = 0;  ///< If 0, the other members have no meaning.
  double min = 0;
  double lower_quartile = 0;
  double median = 0;
  double upper_quartile = 0;
  double max = 0;
};

/// Values must be finite.
Spread spread_of(std::vector<double> values);

/// Returns the quantile `share` (0 .. 1) of sorted values, of which there must be at least one.
double quantile(const std::vector<double>& sorted, double share);

/// `count` bins of equal width from `low` to `high`.
struct Bins {
  double low = 0;
  double high = 1;  ///< Greater than `low`.
  std::size_t count = 1;

  double width() const { return (high - low) / static_cast<double>(count); }
};

struct Histogram {
  Bins bins;
  std::vector<std::int64_t> counts;  ///< One per bin; a value on an edge counts in the upper bin.
  std::int64_t below = 0;            ///< Values below the first bin.
  std::int64_t above = 0;            ///< Values at or above the end of the last bin.
};

Histogram histogram(std::span<const double> values, const Bins& bins);

/// Returns about `count` bins of round width (1, 2, 2.5 or 5 times a power of ten) that cover low
/// to high.
Bins bins_between(double low, double high, std::size_t count);

/// Returns bins for the values up to the 99th percentile, so that one slow step does not compress
/// all others into one bar. `values` must not be empty.
Bins bins_for(std::vector<double> values, std::size_t count);

}  // namespace gradwire::report
