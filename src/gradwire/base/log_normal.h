#pragma once

#include <cmath>
#include <numbers>

#include "gradwire/base/random.h"

namespace gradwire {

/// A time or rate that varies between hosts or over time: log-normal, as values are positive and a
/// few are far above the median.
struct LogNormal {
  double median = 0;
  double sigma = 0;  ///< Standard deviation of the logarithm; 0: always the median.

  /// Box and Muller, "A note on the generation of random normal deviates", 1958.
  double draw(Random& random) const {
    if (sigma == 0) return median;
    const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
    return median * std::exp(sigma * radius * std::cos(2 * std::numbers::pi * random.unit()));
  }
};

}  // namespace gradwire
