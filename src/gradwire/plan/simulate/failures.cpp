#include "gradwire/plan/simulate/failures.h"

#include <cmath>

namespace gradwire::plan {
namespace {

constexpr double kSecondsPerDay = 86'400;

double useful_share(const FailureModel& model, double rate, double interval) {
  const double taken =
      std::exp(model.restart * rate) * std::expm1(rate * (interval + model.checkpoint)) / rate;
  return interval / taken;
}

/// Ternary search on a logarithmic scale: the share has a single maximum.
double best_interval(const FailureModel& model, double rate) {
  const double young = std::sqrt(2 * model.checkpoint / rate);
  double low = std::log(young / 100), high = std::log(young * 100);
  for (int i = 0; i < 200; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    const bool right =
        useful_share(model, rate, std::exp(a)) < useful_share(model, rate, std::exp(b));
    (right ? low : high) = right ? a : b;
  }
  return std::exp(0.5 * (low + high));
}

}  // namespace

FailureCost failure_cost(const FailureModel& model, double interval) {
  if (model.failures_per_day <= 0)
    return {interval, interval > 0 ? interval / (interval + model.checkpoint) : 1};
  const double rate = model.failures_per_day / kSecondsPerDay;
  if (interval <= 0 && model.checkpoint <= 0) return {0, std::exp(-model.restart * rate)};
  const double chosen = interval > 0 ? interval : best_interval(model, rate);
  return {chosen, useful_share(model, rate, chosen)};
}

}  // namespace gradwire::plan
