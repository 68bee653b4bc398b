#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "gradwire/plan/place/degrees.h"

namespace gradwire::plan {
namespace {

PlanInput input_of(const char* model, int nodes, int devices_per_node, double batch) {
  PlanInput input;
  input.model = model_named(model);
  input.device = device_named("a100_80gb");
  input.network = network_named("25gbe");
  input.strategy.nodes = nodes;
  input.strategy.devices_per_node = devices_per_node;
  input.strategy.batch = batch;
  input.strategy.compute = ComputeType::mixed;
  return input;
}

/// Tries all degrees, divisors or not.
double best_of_all(const PlanInput& input) {
  double best = std::numeric_limits<double>::infinity();
  const int devices = input.strategy.devices();
  for (int tensor = 1; tensor <= devices; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= devices; ++pipeline) {
      for (int micro = 1; micro <= input.strategy.global_batch(); ++micro) {
        if (const auto placed = place(input, tensor, pipeline, micro))
          best = std::min(best, placed->time.step);
      }
    }
  }
  return best;
}

TEST(SearchDegrees, FindsTheBestOfAll) {
  for (const PlanInput& input : {input_of("gpt2", 2, 4, 4), input_of("bert_large", 3, 2, 6),
                                 input_of("resnet50", 6, 1, 8), input_of("llama2_7b", 2, 8, 2)}) {
    const auto found = search_degrees(input, {input.strategy.schedule});
    ASSERT_FALSE(found.empty()) << input.model.name;
    EXPECT_LE(search_degrees(input).front().time.step, found.front().time.step);
    EXPECT_DOUBLE_EQ(found.front().time.step, best_of_all(input)) << input.model.name;
  }
}

TEST(SearchDegrees, EveryOneFitsAndKeepsTheGlobalBatch) {
  const PlanInput input = input_of("llama2_7b", 4, 8, 4);
  for (const PlacedStrategy& placed : search_degrees(input)) {
    const Strategy& s = placed.input.strategy;
    EXPECT_EQ(s.tensor * s.pipeline * s.data(), 32);
    EXPECT_DOUBLE_EQ(s.global_batch(), input.strategy.global_batch());
    EXPECT_LE(placed.memory.total(), input.device.memory_bytes);
    EXPECT_EQ(static_cast<int>(placed.stages.stages.size()), s.pipeline);
    EXPECT_GE(placed.imbalance, 1 - 1e-9);
  }
}

/// 7 B parameters with Adam need 112 GB of states: they exceed one A100, but fit when two share
/// them.
TEST(SearchDegrees, ModelsThatDoNotFitAreDivided) {
  const auto found = search_degrees(input_of("llama2_7b", 1, 8, 1));
  ASSERT_FALSE(found.empty());
  for (const PlacedStrategy& placed : found)
    EXPECT_GE(placed.input.strategy.tensor * placed.input.strategy.pipeline, 2);
  EXPECT_TRUE(search_degrees(input_of("llama2_70b", 1, 1, 1)).empty());
}

/// Only bytes and flops decide: a small model is data-parallel if the network allows it.
TEST(SearchDegrees, ASmallModelIsDataParallel) {
  PlanInput input = input_of("resnet50", 4, 1, 64);
  input.network = network_named("100gbe");
  const auto found = search_degrees(input);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().input.strategy.data(), 4);
}

}  // namespace
}  // namespace gradwire::plan
