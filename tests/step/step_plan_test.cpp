#include "gradwire/step/step_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "gradwire/step/local_steps.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::step {
namespace {

workload::ProfileLayer layer(const std::string& name,
                             std::vector<std::vector<std::int64_t>> shapes) {
  workload::ProfileLayer result{.name = name, .forward = 1, .backward = 2};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    result.parameters.push_back({name + "." + std::to_string(i), shapes[i]});
  return result;
}

workload::LayerProfile profile_of(std::vector<workload::ProfileLayer> layers) {
  workload::LayerProfile profile{.name = "test", .layers = std::move(layers)};
  workload::normalize_shares(profile);
  return profile;
}

/// Options without limits that would affect tests with few elements.
StepPlanOptions roomy() {
  return {.limits = {.first_bytes = 1 << 30, .bytes = 1 << 30, .last_bytes = 1 << 30}};
}

TEST(StepPlan, HoldsEveryTensorOnceInReverse) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  for (const bool compress : {false, true}) {
    StepPlanOptions options;
    options.compress = compress;
    const StepPlan plan = plan_step(profile, options);
    EXPECT_EQ(plan.elements(), profile.parameters());
    std::map<std::string, int> seen;
    for (const exchange::UnitShape& bucket : plan.buckets) {
      std::size_t offset = 0;
      for (const exchange::UnitTensor& tensor : bucket.tensors) {
        ++seen[tensor.name];
        EXPECT_EQ(tensor.offset, offset);
        offset += tensor.rows * tensor.columns;
      }
      EXPECT_EQ(offset, bucket.count);
    }
    EXPECT_EQ(seen.size(), profile.tensors());
    EXPECT_TRUE(std::ranges::is_sorted(plan.first_layer, std::greater<>{}));
    EXPECT_EQ(plan.first_layer.back(), 0u);
  }
}

TEST(StepPlan, KnowsWhatEachLayerNeeds) {
  const workload::LayerProfile profile =
      profile_of({layer("a", {{4}}), layer("b", {{4}}), layer("none", {}), layer("c", {{4}, {4}})});
  StepPlanOptions options;
  options.limits = {.first_bytes = 32, .bytes = 32, .last_bytes = 32};
  const StepPlan plan = plan_step(profile, options);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.first_layer, (std::vector<std::size_t>{3, 0}));
  EXPECT_EQ(plan.needs, (std::vector<std::vector<std::size_t>>{{1}, {1}, {}, {0}}));
}

TEST(StepPlan, ABucketOverSeveralLayersIsCompleteWithTheFirst) {
  const StepPlan plan =
      plan_step(profile_of({layer("a", {{4}}), layer("b", {{4}}), layer("c", {{4}})}), roomy());
  EXPECT_EQ(plan.first_layer, (std::vector<std::size_t>{0}));
  EXPECT_EQ(plan.needs, (std::vector<std::vector<std::size_t>>{{0}, {0}, {0}}));
}

TEST(StepPlan, SeparatesUncompressedTensors) {
  StepPlanOptions options = roomy();
  options.compress = true;
  options.codec_min_elements = 6;
  const StepPlan plan =
      plan_step(profile_of({layer("a", {{2, 3}, {100}}), layer("b", {{5, 1}, {3, 3}})}), options);
  ASSERT_EQ(plan.buckets.size(), 2u);
  for (const exchange::UnitShape& bucket : plan.buckets) {
    std::vector<std::string> names;
    for (const exchange::UnitTensor& tensor : bucket.tensors) names.push_back(tensor.name);
    EXPECT_EQ(names, bucket.skip_compression ? (std::vector<std::string>{"b.0", "a.1"})
                                             : (std::vector<std::string>{"b.1", "a.0"}));
  }
  options.compress = false;
  EXPECT_EQ(plan_step(profile_of({layer("a", {{2, 3}, {100}})}), options).buckets.size(), 1u);
}

TEST(StepPlan, CutsTensorsBetweenRows) {
  StepPlanOptions options;
  options.limits = {.first_bytes = 24, .bytes = 24, .last_bytes = 24};
  options.partition_bytes = 24;
  const StepPlan plan = plan_step(profile_of({layer("a", {{5, 3}})}), options);
  std::vector<std::string> names;
  std::size_t rows = 0;
  for (const exchange::UnitShape& bucket : plan.buckets) {
    ASSERT_EQ(bucket.tensors.size(), 1u);
    names.push_back(bucket.tensors[0].name);
    EXPECT_EQ(bucket.tensors[0].columns, 3u);
    rows += bucket.tensors[0].rows;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a.0[3:5]", "a.0[1:3]", "a.0[0:1]"}));
  EXPECT_EQ(rows, 5u);
  EXPECT_EQ(plan.needs[0].size(), 3u);
}

TEST(StepPlan, LeavesASmallBucketToTheFirstLayer) {
  for (const std::string_view name : {"resnet50", "resnet101"}) {
    for (const bool compress : {false, true}) {
      StepPlanOptions options;
      options.compress = compress;
      const StepPlan plan = plan_step(workload::profile_named(std::string(name)), options);
      std::size_t bytes = 0;  // Bytes that the first forward layer waits for.
      for (const std::size_t bucket : plan.needs[0]) bytes += plan.buckets[bucket].count * 4;
      EXPECT_LE(bytes, 100u << 10) << name << compress;
    }
  }
}

TEST(LocalStepsPlan, DealsTensorsOutAsTheTrainerDoes) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  std::vector<std::int64_t> sizes;
  std::map<std::string, std::size_t> number;
  for (const workload::ProfileLayer& layer : profile.layers) {
    for (const workload::ProfileTensor& tensor : layer.parameters) {
      number[tensor.name] = sizes.size();
      sizes.push_back(static_cast<std::int64_t>(tensor.count()));
    }
  }
  for (const std::int64_t fragments : {1, 2, 8}) {
    const StepPlan plan = plan_local_steps(profile, fragments, {.compress = true});
    EXPECT_EQ(plan.elements(), profile.parameters());
    const auto fragment_of = plan_fragments(sizes, fragments);
    for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
      for (const exchange::UnitTensor& tensor : plan.buckets[i].tensors)
        EXPECT_EQ(plan.fragment_of[i], fragment_of[number.at(tensor.name)]) << tensor.name;
    }
    EXPECT_TRUE(std::ranges::is_sorted(plan.fragment_of));
    EXPECT_EQ(plan.fragment_of.back(), static_cast<std::size_t>(fragments - 1));
  }
}

TEST(LocalStepsPlan, SeparatesUncompressedTensors) {
  const StepPlan plan =
      plan_local_steps(profile_of({layer("a", {{2, 3}, {100}}), layer("b", {{5, 1}, {3, 3}})}), 1,
                       {.compress = true, .codec_min_elements = 6});
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_NE(plan.buckets[0].skip_compression, plan.buckets[1].skip_compression);
}

}  // namespace
}  // namespace gradwire::step
