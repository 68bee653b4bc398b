#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire {

/// Which values are counted together: `count` stretches of the same width from `low` to `high`.
struct Bins {
  double low = 0;
  double high = 1;  ///< Above `low`.
  std::size_t count = 1;

  double width() const { return (high - low) / static_cast<double>(count); }
};

struct Histogram {
  Bins bins;
  std::vector<std::int64_t> counts;  ///< One a bin; a value on a border belongs to the upper one.
  std::int64_t below = 0;            ///< Values below the first.
  std::int64_t above = 0;            ///< Values from the end of the last.
};

Histogram histogram(std::span<const double> values, const Bins& bins);

/// About `count` bins of round width (1, 2, 2.5 or 5 times a power of ten) that hold low to high.
Bins bins_between(double low, double high, std::size_t count);

/// Those for the values up to the 99th percentile, so that one slow step does not squeeze all
/// others into one bar. At least one value.
Bins bins_for(std::vector<double> values, std::size_t count);

}  // namespace gradwire
