#include "gradwire/report/spread.h"

#include <algorithm>
#include <cmath>

namespace gradwire {

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

}  // namespace gradwire
