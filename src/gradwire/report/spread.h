#pragma once

#include <cstddef>
#include <vector>

namespace gradwire {

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

}  // namespace gradwire
