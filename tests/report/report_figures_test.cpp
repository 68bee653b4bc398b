#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/report/histogram.h"
#include "gradwire/report/report_data.h"

namespace gradwire::report {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kTiny = 1e-12;

// Expected values from numpy: numpy.quantile(values, [0, 0.25, 0.5, 0.75, 1]).
TEST(Spread, QuartilesAsNumpyHasThem) {
  const auto spread = spread_of({0.31, 0.28, 0.35, 0.30, 0.29, 0.90, 0.33});
  EXPECT_EQ(spread.count, 7);
  EXPECT_EQ(spread.min, 0.28);
  EXPECT_NEAR(spread.lower_quartile, 0.295, kTiny);
  EXPECT_NEAR(spread.median, 0.31, kTiny);
  EXPECT_NEAR(spread.upper_quartile, 0.34, kTiny);
  EXPECT_EQ(spread.max, 0.90);
  EXPECT_EQ(spread_of({1, 2}).lower_quartile, 1.25);
  EXPECT_EQ(spread_of({1, 2}).upper_quartile, 1.75);
  EXPECT_EQ(spread_of({4}).lower_quartile, 4);
  EXPECT_EQ(spread_of({}).count, 0);
}

// numpy.histogram(values, bins=8, range=(0, 0.8)); no value is on a bin edge.
TEST(Histogram, CountsAsNumpyDoes) {
  const std::vector<double> values = {0.76, 0.34, 0.21, 0.05, 0.15, 0.31, 0.22, 0.13, 0.35,
                                      0.46, 0.27, 0.37, 0.24, 0.72, 0.23, 0.15, 0.44, 0.28,
                                      0.14, 0.31, 0.21, 0.27, 0.57, 0.32, 0.23, -1,   0.81};
  const auto counted = histogram(values, {.low = 0, .high = 0.8, .count = 8});
  EXPECT_THAT(counted.counts, ElementsAre(1, 4, 9, 6, 2, 1, 0, 2));
  EXPECT_EQ(counted.below, 1);
  EXPECT_EQ(counted.above, 1);
}

TEST(Histogram, BinsAreRoundAndLeaveOutTheSlowestHundredth) {
  std::vector<double> values(1000, 0.2);
  for (std::size_t i = 0; i < 500; ++i) values[i] = 0.2 + 0.0001 * static_cast<double>(i);
  values[999] = 60;
  const auto bins = bins_for(values, 40);
  EXPECT_NEAR(bins.width(), 0.002, kTiny);  // 0.05 / 40 = 0.00125, rounded up.
  EXPECT_NEAR(bins.low, 0.2, kTiny);
  EXPECT_NEAR(bins.high, 0.25, 0.0021);
  const auto counted = histogram(values, bins);
  EXPECT_EQ(counted.above, 1);
  EXPECT_EQ(counted.below, 0);
}

TEST(Histogram, EqualValuesHaveABinToo) {
  for (const double value : {0.0, 0.25, 1e-7, 3600.0}) {
    const auto bins = bins_for({value, value}, 40);
    EXPECT_GT(bins.high, bins.low) << value;
    EXPECT_LE(bins.count, 60) << value;
    const auto counted = histogram(std::vector{value, value}, bins);
    EXPECT_EQ(counted.below + counted.above, 0) << value;
  }
}

std::vector<RunStep> steps_with(const std::vector<double>& losses, std::int64_t first = 0) {
  std::vector<RunStep> steps;
  for (const double loss : losses) {
    steps.push_back({.step = first + static_cast<std::int64_t>(steps.size()), .loss = loss});
  }
  return steps;
}

TEST(LossCurve, IsTheMeansOfStretches) {
  const auto whole = loss_curve(steps_with({4, 2, 1}), 10);
  EXPECT_THAT(whole.step, ElementsAre(0, 1, 2));
  EXPECT_THAT(whole.loss, ElementsAre(4, 2, 1));
  const auto short_one = loss_curve(steps_with({4, 2, 1, 5, 0, 1}), 3);
  EXPECT_THAT(short_one.step, ElementsAre(0.5, 2.5, 4.5));
  EXPECT_THAT(short_one.loss, ElementsAre(3, 3, 0.5));
  EXPECT_TRUE(loss_curve({}, 3).step.empty());
}

TEST(LossCurve, LeavesOutWhatIsNotFinite) {
  const double infinite = std::numeric_limits<double>::infinity();
  const auto curve = loss_curve(steps_with({infinite, std::nan(""), 3, infinite}), 2);
  EXPECT_THAT(curve.step, ElementsAre(2.5));
  EXPECT_THAT(curve.loss, ElementsAre(3));
  EXPECT_EQ(curve.not_finite, 3);
}

TEST(LargestDifference, IsOverTheStepsThatBothHave) {
  EXPECT_EQ(largest_difference(steps_with({4, 2, 1}), steps_with({2.5, 1.25}, 1)), 0.5);
  EXPECT_EQ(largest_difference(steps_with({4}), steps_with({4})), 0);
  EXPECT_LT(largest_difference(steps_with({4}), steps_with({4}, 7)), 0);
}

TEST(BusiestStep, IsTheLaterOfThoseWithTheMostSamples) {
  MemoryTimeline memory;
  const auto add = [&memory](std::int64_t step, int samples) {
    for (int i = 0; i < samples; ++i) memory.samples.push_back({.step = step});
  };
  add(-1, 90);
  add(0, 7);
  EXPECT_TRUE(busiest_step(memory).empty());
  add(1, 9);
  add(2, 9);
  add(3, 8);
  const auto samples = busiest_step(memory);
  ASSERT_EQ(samples.size(), 9);
  EXPECT_EQ(samples.front().step, 2);
}

ReportRun run_of(const std::vector<double>& seconds) {
  ReportRun run;
  for (const double value : seconds) run.record.steps.push_back({.compute = value});
  return run;
}

TEST(StepTimeBins, AreSharedByRunsThatCanBeCompared) {
  bool shared = false;
  const auto same = step_time_bins({run_of({0.1, 0.11}), run_of({}), run_of({0.38})}, shared);
  EXPECT_TRUE(shared);
  ASSERT_EQ(same.size(), 3);
  EXPECT_EQ(same[0].low, same[2].low);
  EXPECT_EQ(same[0].high, same[2].high);
  EXPECT_LE(same[0].low, 0.1);
  EXPECT_GT(same[0].high, 0.38);
  const auto own = step_time_bins({run_of({0.1, 0.11}), run_of({0.48})}, shared);
  EXPECT_FALSE(shared);
  EXPECT_LT(own[0].high, own[1].low);
  step_time_bins({}, shared);
  EXPECT_FALSE(shared);
}

}  // namespace
}  // namespace gradwire::report
