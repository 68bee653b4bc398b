#include "gradwire/plan/ways.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::plan {
namespace {

PlanInput input_of(const std::string& model, const std::string& network) {
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
  EXPECT_THAT(reason_of(best), ::testing::HasSubstr("too large: 4 micro-batches"));
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

/// The search finds a schedule that is faster than the named ones; the others are listed.
TEST(CompareWays, SearchesForASchedule) {
  PlanInput input = input_of("gpt2", "2.5gbe");
  input.device.memory_bytes = 6e9;
  const auto ways = compare_ways(input);
  const Way& pipeline = named(ways, "pipeline");
  EXPECT_EQ(pipeline.input.strategy.schedule, "auto");
  std::vector<std::string> against;
  for (const OtherWay& other : pipeline.others) {
    against.push_back(other.what);
    if (other.step == 0) continue;
    EXPECT_GE(other.step, pipeline.step * (1 - 1e-9)) << other.what;
  }
  EXPECT_THAT(against, ::testing::IsSupersetOf({"1f1b", "zero_bubble"}));
  EXPECT_THAT(reason_of(pipeline), ::testing::HasSubstr("% slower"));
  const RunPipeline made = run_pipeline(*pipeline.placed);
  EXPECT_EQ(made.schedule.ranks(), pipeline.input.strategy.pipeline);
  EXPECT_EQ(pipeline.memory_by_stage.size(), pipeline.cut.size());
  const double passes = pipeline.step - pipeline.time.exposed - pipeline.time.phases.update;
  EXPECT_NEAR(simulate(made.schedule, made.costs, 4).step_seconds, passes, 1e-6 * passes);
}

TEST(CompareWays, NoLossIsLongerThanTheStep) {
  for (const std::string model : {"resnet50", "vgg16", "gpt2"}) {
    for (const Way& way : compare_ways(input_of(model, "1gbe"))) {
      const PhaseTimes& p = way.time.phases;
      for (const double loss : {p.bubble, p.unequal, p.inside, way.time.exposed}) {
        EXPECT_GE(loss, 0) << way.name;
        EXPECT_LT(loss, way.step) << way.name;
      }
      EXPECT_NEAR(
          way.step,
          p.forward + p.backward + p.update + p.bubble + p.unequal + p.inside + way.time.exposed,
          1e-9 * way.step);
    }
  }
}

TEST(CompareWays, IsWhatPlanAndPlacePredict) {
  const PlanInput input = input_of("resnet50", "1gbe");
  const auto ways = compare_ways(input);
  const auto pipeline =
      std::ranges::find_if(ways, [](const Way& way) { return way.input.strategy.pipeline > 1; });
  ASSERT_NE(pipeline, ways.end());
  const Strategy& s = pipeline->input.strategy;
  EXPECT_DOUBLE_EQ(step_time(pipeline->input).step, pipeline->step);
  const auto placed = place(pipeline->input, 1, s.pipeline, s.micro_batches);
  ASSERT_TRUE(placed);
  EXPECT_DOUBLE_EQ(placed->time.step, pipeline->step);
  EXPECT_LE(search_degrees(input).front().time.step, pipeline->step);
}

TEST(CompareWays, SaysWhatACodecOfActivationsSaves) {
  const auto pipeline_in = [](ComputeType compute, const char* network) {
    PlanInput input = input_of("gpt2", network);
    input.strategy.compute = compute;
    return named(compare_ways(input), "pipeline");
  };
  const Way limited = pipeline_in(ComputeType::fp32, "1gbe");
  EXPECT_GT(limited.step_in_int8, 0);
  EXPECT_LT(limited.step_in_int8, 0.98 * limited.step);
  EXPECT_THAT(reason_of(limited), ::testing::HasSubstr("int8 activations (pipeline.codec)"));
  EXPECT_EQ(pipeline_in(ComputeType::fp32, "400gbe").step_in_int8, 0) << "no boundary limits";
  EXPECT_EQ(pipeline_in(ComputeType::bf16, "1gbe").step_in_int8, 0) << "codecs take float32";
}

TEST(CompareWays, OneDeviceHasNone) {
  PlanInput input = input_of("gpt2", "1gbe");
  input.strategy.nodes = 1;
  EXPECT_TRUE(compare_ways(input).empty());
}

}  // namespace
}  // namespace gradwire::plan
