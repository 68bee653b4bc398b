#include "gradwire/report/page_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace gradwire::report {

nlohmann::ordered_json rounded(double value) {
  if (!std::isfinite(value)) return {};
  if (value == 0 || std::floor(value) == value) return value;
  const double power = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * power) / power;
}

nlohmann::ordered_json spread_json(const std::vector<double>& values) {
  const auto spread = spread_of(values);
  if (spread.count == 0) return {};
  return {{"count", spread.count},
          {"least", rounded(spread.min)},
          {"lower_quartile", rounded(spread.lower_quartile)},
          {"median", rounded(spread.median)},
          {"upper_quartile", rounded(spread.upper_quartile)},
          {"most", rounded(spread.max)}};
}

nlohmann::ordered_json histogram_json(const std::vector<double>& values, const Bins& bins) {
  if (values.empty()) return {};
  const auto counted = histogram(values, bins);
  return {{"low", rounded(bins.low)},
          {"width", rounded(bins.width())},
          {"counts", counted.counts},
          {"above", counted.above}};
}

}  // namespace gradwire::report
