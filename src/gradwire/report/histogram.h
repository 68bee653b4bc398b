#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire {

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

}  // namespace gradwire
