#include "gradwire/data/click_through.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"

namespace gradwire::test {
namespace {

constexpr ClickOptions kSmallClicks{
    .samples = 20'000, .rows = 1'000, .fields = 4, .dense = 3, .seed = 5};

torch::Tensor ids_of(const ClickData& data) {
  return data.features.narrow(1, kSmallClicks.dense, kSmallClicks.fields).to(torch::kInt64);
}

TEST(ClickThrough, IsAFunctionOfTheSeed) {
  const ClickData first = make_clicks(Split::train, kSmallClicks);
  const ClickData again = make_clicks(Split::train, kSmallClicks);
  EXPECT_TRUE(first.features.equal(again.features));
  EXPECT_TRUE(first.clicks.equal(again.clicks));
  ClickOptions other = kSmallClicks;
  other.seed = 6;
  EXPECT_FALSE(first.features.equal(make_clicks(Split::train, other).features));
  const ClickData test = make_clicks(Split::test, kSmallClicks);
  EXPECT_EQ(test.size(), 5'000);
  EXPECT_FALSE(first.features.narrow(0, 0, 5'000).equal(test.features));
}

TEST(ClickThrough, DrawsFewIdsOftenAndEachInItsField) {
  const torch::Tensor ids = ids_of(make_clicks(Split::train, kSmallClicks));
  for (std::int64_t field = 0; field < kSmallClicks.fields; ++field) {
    const torch::Tensor own = ids.select(1, field) - 250 * field;
    EXPECT_EQ(own.min().item<std::int64_t>(), 0);
    EXPECT_LT(own.max().item<std::int64_t>(), 250);
    // log(1 + 1/n) / log(251) of them are the n-th.
    EXPECT_NEAR(own.eq(0).to(torch::kDouble).mean().item<double>(), 0.1254, 0.01);
    EXPECT_NEAR(own.lt(10).to(torch::kDouble).mean().item<double>(), 0.434, 0.015);
  }
}

/// An id says more than chance allows, and the dense features less than the ids.
TEST(ClickThrough, LeavesMostOfWhatCanBeLearnedInTheIds) {
  const ClickData data = make_clicks(Split::train, kSmallClicks);
  const torch::Tensor clicks = data.clicks.to(torch::kDouble);
  const double all = clicks.mean().item<double>();
  EXPECT_GT(all, 0.1);
  EXPECT_LT(all, 0.9);
  double largest = 0;
  const torch::Tensor ids = ids_of(data);
  for (std::int64_t field = 0; field < kSmallClicks.fields; ++field) {
    const torch::Tensor often = ids.select(1, field).eq(250 * field);
    const double clicked = clicks.masked_select(often).mean().item<double>();
    largest = std::max(largest, std::abs(clicked - all));
  }
  EXPECT_GT(largest, 0.05);
}

TEST(ClickThrough, GivesBatchesOfOneTensor) {
  const ClickData data = make_clicks(Split::train, kSmallClicks);
  const Batch batch = data.batch({.samples = {7, 3}, .own = 1});
  EXPECT_TRUE(batch.inputs[1].equal(data.features[3]));
  EXPECT_TRUE(batch.targets[0].equal(data.clicks[7]));
  EXPECT_EQ(batch.own, 1);
}

TEST(ClickThrough, RefusesFieldsWithoutIds) {
  EXPECT_THROW(make_clicks(Split::train, {.rows = 3, .fields = 4}), Exception);
  EXPECT_THROW(make_clicks(Split::train, {.fields = 0}), Exception);
}

}  // namespace
}  // namespace gradwire::test
