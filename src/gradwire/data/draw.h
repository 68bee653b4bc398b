#pragma once

#include <cmath>

#include "gradwire/base/random.h"

/// Random numbers of synthetic data.
namespace gradwire {

/// Mean 0, variance 1, nearly normal: the sum of twelve uniform numbers, whose distribution differs
/// from the normal one by less than 0.003. Only exact operations, so it is the same everywhere.
inline double draw_gaussian(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum;
}

/// The logarithm of a number from the Gamma distribution with scale 1, whose numbers may be too
/// small for a double (Marsaglia, Tsang, ACM TOMS 26(3), 2000). `shape` is positive.
inline double draw_log_gamma(double shape, Random& random) {
  if (shape < 1) {
    return draw_log_gamma(shape + 1, random) + std::log(1 - random.unit()) / shape;
  }
  const double d = shape - 1.0 / 3;
  while (true) {
    const double x = draw_gaussian(random);
    const double root = 1 + x / std::sqrt(9 * d);
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.unit()) < x * x / 2 + d - d * v + d * std::log(v)) {
      return std::log(d * v);
    }
  }
}

}  // namespace gradwire
