#include "gradwire/step/bucket_plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"

namespace gradwire::step {
namespace {

using Plan = std::vector<std::vector<std::size_t>>;

TEST(BucketPlan, FillsInReverseOrderWithASmallFirstBucket) {
  const auto plan = plan_buckets({{4}, {4}, {4}, {4}, {4}}, {.first_bytes = 4, .bytes = 8});
  EXPECT_EQ(plan, (Plan{{4}, {3, 2}, {1, 0}}));
}

TEST(BucketPlan, GivesAParameterLargerThanTheLimitABucketOfItsOwn) {
  const auto plan = plan_buckets({{1}, {100}, {1}}, {.first_bytes = 8, .bytes = 8});
  EXPECT_EQ(plan, (Plan{{2}, {1}, {0}}));
}

TEST(BucketPlan, KeepsKindsApart) {
  const auto plan = plan_buckets({{1, 0}, {1, 1}, {1, 0}, {1, 1}}, {.first_bytes = 9, .bytes = 9});
  EXPECT_EQ(plan, (Plan{{3, 1}, {2, 0}}));
}

TEST(BucketPlan, TapersTowardsTheEnd) {
  const std::vector<ParameterSize> parameters(64, {1});
  const auto plan = plan_buckets(parameters, {.first_bytes = 16, .bytes = 16, .last_bytes = 2});
  std::vector<std::size_t> sizes;
  for (const auto& bucket : plan) sizes.push_back(bucket.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{16, 16, 16, 8, 4, 2, 2}));
}

TEST(BucketPlan, TapersEachKindByItself) {
  std::vector<ParameterSize> parameters;
  for (int i = 0; i < 8; ++i) parameters.insert(parameters.end(), {{1000, 0}, {1, 1}});
  const auto plan = plan_buckets(parameters, {.first_bytes = 9000, .bytes = 9000, .last_bytes = 2});
  std::vector<std::size_t> sizes;
  for (const auto& bucket : plan) {
    if (parameters[bucket[0]].kind == 1) sizes.push_back(bucket.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 2, 2}));
}

TEST(BucketPlan, NothingMakesNoBuckets) {
  EXPECT_TRUE(plan_buckets({}).empty());
}

TEST(BucketPlan, HoldsEachParameterOnceWithinTheLimits) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<ParameterSize> parameters(random.below(40));
    for (auto& p : parameters) p = {random.below(30), static_cast<int>(random.below(3))};
    const BucketLimits limits{.first_bytes = 10, .bytes = 50};
    std::vector<int> seen(parameters.size());
    for (const auto& bucket : plan_buckets(parameters, limits)) {
      std::size_t bytes = 0;
      for (const auto index : bucket) {
        ++seen[index];
        bytes += parameters[index].bytes;
        EXPECT_EQ(parameters[index].kind, parameters[bucket[0]].kind);
      }
      EXPECT_TRUE(bytes <= limits.bytes || bucket.size() == 1);
      EXPECT_TRUE(std::ranges::is_sorted(bucket, std::greater<>{}));
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; })) << round;
  }
}

}  // namespace
}  // namespace gradwire::step
