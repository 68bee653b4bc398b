#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/servers/server_core.h"

/// SGD without momentum on a quadratic, with gradients of a fixed staleness.
namespace gradwire::servers::test {
namespace {

constexpr double kCurvature = 3;

/// One parameter. Gradients are stored by GradientId.
class Quadratic final : private ShardStore {
 public:
  Quadratic(double learning_rate, RateRule rule)
      : learning_rate_(learning_rate),
        core_({.mode = Mode::async, .workers = 1, .rate = rule}, 1, *this) {}

  /// Begins with the value 1, and applies `updates` gradients, each of which is `delay` updates
  /// old. Returns the magnitude of the last value.
  double run(std::int64_t updates, std::int64_t delay) {
    for (std::int64_t clock = 0; clock < updates; ++clock) {
      const std::int64_t base = std::max<std::int64_t>(0, clock - delay);
      gradients_.push_back(kCurvature * values_[static_cast<std::size_t>(base)]);
      core_.on_push({.clock = clock, .base = base, .gradient = gradients_.size() - 1});
    }
    // An oscillation may cross zero at the end.
    double largest = 0;
    for (std::size_t i = values_.size() - 64; i < values_.size(); ++i) {
      if (!std::isfinite(values_[i])) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::abs(values_[i]));
    }
    return largest;
  }

 private:
  void apply(std::size_t, std::span<const GradientId> gradients, double factor) override {
    values_.push_back(values_.back() - learning_rate_ * factor * gradients_[gradients[0]]);
  }
  void drop(GradientId) override {}

  double learning_rate_;
  std::vector<double> values_{1};  ///< By version.
  std::vector<double> gradients_;
  ServerCore core_;
};

/// The learning rate from which on it diverges: 2 sin(pi / (2 (2 tau + 1))) / curvature.
double limit_of(std::int64_t delay) {
  const double odd = 2 * static_cast<double>(delay) + 1;
  return 2 * std::sin(std::numbers::pi / (2 * odd)) / kCurvature;
}

constexpr std::int64_t kLength = 20'000;

TEST(FixedDelay, ConvergesBelowTheLimitAndDivergesAboveIt) {
  for (const std::int64_t delay : {0, 1, 3, 7, 15}) {
    EXPECT_LT(Quadratic(0.98 * limit_of(delay), {}).run(kLength, delay), 1e-3) << delay;
    EXPECT_GT(Quadratic(1.02 * limit_of(delay), {}).run(kLength, delay), 1e3) << delay;
  }
}

TEST(FixedDelay, TheInverseRuleConvergesAtRatesThatDivergeWithoutIt) {
  for (const std::int64_t delay : {3, 7, 15}) {
    const RateRule inverse{RateRule::Kind::inverse};
    EXPECT_LT(Quadratic(1.02 * limit_of(delay), inverse).run(kLength, delay), 1e-3) << delay;
  }
}

}  // namespace
}  // namespace gradwire::servers::test
