#include "gradwire/plan/predict/memory.h"

#include <cmath>

#include <gtest/gtest.h>

namespace gradwire::plan {
namespace {

constexpr double kPsi = 7.5e9;

double gigabytes(int stage) {
  const double bytes =
      zero_states(kPsi, bytes_per_parameter(ComputeType::mixed, OptimizerKind::adam), stage, 64);
  return std::round(bytes / 1e8) / 10;
}

/// Figure 1 of the paper.
TEST(Zero, StatesAreThoseOfThePaper) {
  EXPECT_DOUBLE_EQ(gigabytes(0), 120);
  EXPECT_DOUBLE_EQ(gigabytes(1), 31.4);
  EXPECT_DOUBLE_EQ(gigabytes(2), 16.6);
  EXPECT_DOUBLE_EQ(gigabytes(3), 1.9);
}

TEST(Memory, IsByCategory) {
  const ModelShape model = model_named("gpt2");
  const Strategy strategy{.nodes = 4, .batch = 8};
  const MemoryUse use = memory_use(model, strategy);
  const double parameters = 124'439'808;
  EXPECT_DOUBLE_EQ(use.parameters, 4 * parameters);
  EXPECT_DOUBLE_EQ(use.gradients, 4 * parameters);
  EXPECT_DOUBLE_EQ(use.optimizer, 8 * parameters);
  EXPECT_DOUBLE_EQ(use.activations, 4 * 8 * model.kept());
  EXPECT_EQ(use.buffers, 0);
  EXPECT_DOUBLE_EQ(use.total(), use.states() + use.activations);
}

TEST(Memory, SumsOf16BitsOverSeveralPassesHave32InStageOne) {
  const ModelShape model = model_named("gpt2");
  Strategy strategy{.nodes = 4, .compute = ComputeType::mixed, .zero_stage = 1};
  const double once = memory_use(model, strategy).gradients;
  strategy.accumulate = 2;
  EXPECT_DOUBLE_EQ(memory_use(model, strategy).gradients, 3 * once);
  strategy.compute = ComputeType::fp32;
  EXPECT_DOUBLE_EQ(memory_use(model, strategy).gradients, 2 * once);
}

TEST(Memory, ActivationsFallWithRecomputationStagesAndTensors) {
  const ModelShape model = model_named("gpt2_xl");
  Strategy strategy{.nodes = 8, .batch = 8, .recompute = true};
  const double all = 4 * 8 * model.kept();
  EXPECT_LT(memory_use(model, strategy).activations, 0.25 * all);
  strategy.recompute = false;
  strategy.tensor = 4;
  EXPECT_DOUBLE_EQ(memory_use(model, strategy).activations, all / 4);
  strategy.tensor = 1;
  strategy.pipeline = 4;
  strategy.micro_batches = 8;
  EXPECT_DOUBLE_EQ(memory_use(model, strategy, 4).activations, all / 8);  // 4 of 8 micro-batches.
}

TEST(Memory, CodecsWithFeedbackKeepResiduals) {
  const ModelShape model = model_named("resnet50");
  Strategy strategy{.nodes = 4, .codec = "int8"};
  EXPECT_DOUBLE_EQ(memory_use(model, strategy).buffers, 4.0 * 25'557'032);
  strategy.codec = "bf16";
  EXPECT_EQ(memory_use(model, strategy).buffers, 0);
}

TEST(Memory, RecordedModelsLackActivations) {
  ModelShape model = model_named("resnet50");
  for (ModelLayer& layer : model.layers) layer.kept = 0;
  EXPECT_FALSE(memory_use(model, {}).activations_known);
}

}  // namespace
}  // namespace gradwire::plan
