#include "gradwire/plan/ways.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::plan {
namespace {

PlanInput input_of(const char* model, const char* network) {
  return {.model = model_named(model),
          .device = device_named("rtx4090"),
          .network = network_named(network),
          .strategy = {.nodes = 4, .batch = 8, .compute = ComputeType::bf16}};
}

const Way& named(const std::vector<Way>& ways, std::string_view name) {
  return *std::ranges::find_if(ways, [&](const Way& way) { return way.name.starts_with(name); });
}

/// 1.6 B parameters have 25 GB of states: over 1 Gb/s they are split, not gathered.
TEST(CompareWays, ALargeModelOnASlowNetworkIsAPipeline) {
  const auto ways = compare_ways(input_of("gpt2_xl", "1gbe"));
  ASSERT_EQ(ways.size(), 3u);
  const Way& best = ways.front();
  EXPECT_THAT(sentence_of(best), ::testing::StartsWith("pipeline of 4 stages ("));
  EXPECT_EQ(best.cut.size(), 4u);
  EXPECT_EQ(std::accumulate(best.cut.begin(), best.cut.end(), std::size_t{0}), 50u)
      << "embedding, 48 blocks, output";
  EXPECT_DOUBLE_EQ(best.input.strategy.global_batch(), 32);
  const Way& data = named(ways, "data parallelism");
  EXPECT_FALSE(data.fits);
  EXPECT_EQ(named(ways, "ZeRO").name, "ZeRO stage 3");
  EXPECT_THAT(sentence_of(data), ::testing::HasSubstr("does not fit"));
}

TEST(CompareWays, ASmallModelOnAFastNetworkIsDataParallel) {
  PlanInput input = input_of("resnet50", "100gbe");
  input.strategy.batch = 128;
  input.strategy.overlap = step::Overlap::full;
  const auto ways = compare_ways(input);
  ASSERT_FALSE(ways.empty());
  EXPECT_NE(ways.front().name.substr(0, 8), "pipeline");
  EXPECT_TRUE(named(ways, "data parallelism").fits);
}

TEST(CompareWays, OneDeviceHasNone) {
  PlanInput input = input_of("gpt2", "1gbe");
  input.strategy.nodes = 1;
  EXPECT_TRUE(compare_ways(input).empty());
}

}  // namespace
}  // namespace gradwire::plan
