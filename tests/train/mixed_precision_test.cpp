#include "gradwire/train/optim/mixed_precision.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/train/data_parallel/accumulate.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

TEST(LossScaler, GrowsAfterGoodStepsAndBacksOffAfterABadOne) {
  LossScaler scaler({.scale = 8, .growth_interval = 3});
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(scaler.scale(), 8);
    scaler.update(true);
  }
  EXPECT_EQ(scaler.scale(), 16);
  scaler.update(true);
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(scaler.skipped(), 1);
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 8) << "good steps count from the bad one on";
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScaler, GivesUpWhenNoScaleHelps) {
  LossScaler scaler({.scale = 4, .min_scale = 1});
  scaler.update(false);
  scaler.update(false);
  EXPECT_THROW(scaler.update(false), Exception);
}

TEST(LossScaler, GoesOnFromItsState) {
  LossScaler first({.scale = 8, .growth_interval = 3});
  first.update(true);
  first.update(true);
  LossScaler second({.scale = 1, .growth_interval = 3});
  second.load(first.state());
  second.update(true);
  EXPECT_EQ(second.scale(), 16);
}

TEST(UnscaleGradients, DividesAndFindsWhatIsNotFinite) {
  auto a = torch::ones({2}).requires_grad_();
  auto b = torch::ones({2}).requires_grad_();
  a.mutable_grad() = torch::full({2}, 6.0);
  EXPECT_TRUE(unscale_gradients({a, b}, 2));
  EXPECT_TRUE(a.grad().equal(torch::full({2}, 3.0)));
  b.mutable_grad() = torch::tensor({1.f, std::numeric_limits<float>::infinity()});
  EXPECT_FALSE(unscale_gradients({a, b}, 2));
}

TEST(Autocast, HoldsForItsBlockAlone) {
  const auto a = torch::ones({4, 4});
  {
    const Autocast bf16(Precision::bf16);
    EXPECT_EQ(torch::matmul(a, a).scalar_type(), torch::kBFloat16);
    const Autocast fp16(Precision::fp16);
    EXPECT_EQ(torch::matmul(a, a).scalar_type(), torch::kHalf);
  }
  EXPECT_EQ(torch::matmul(a, a).scalar_type(), torch::kFloat32);
}

TEST(Autocast, SeesParametersThatHaveChanged) {
  torch::nn::Linear layer(2, 2);
  std::vector<torch::Tensor> outputs;
  for (int step = 0; step < 2; ++step) {
    const Autocast autocast(Precision::bf16);
    outputs.push_back(layer(torch::ones({1, 2})).to(torch::kFloat32));
    const torch::NoGradGuard no_grad;
    layer->bias.add_(1);
  }
  EXPECT_TRUE(outputs[1].allclose(outputs[0] + 1, 0.02, 0.02));
}

recipe::TrainConfig half_precision(const char* model, Precision precision) {
  recipe::TrainConfig config;
  config.model.name = model;
  config.model.channels = 4;
  config.model.hidden = 16;
  config.optimizer.learning_rate = 0.02;
  config.optimizer.momentum = 0;
  config.precision = precision;
  config.parallel.overlap = step::Overlap::backward;
  return config;
}

Batch batch_of(int seed, std::int64_t samples) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  const auto targets = torch::randint(10, {samples}, generator, torch::kInt64);
  auto inputs = torch::randn({samples, 1, 28, 28}, generator) * 0.1;
  for (std::int64_t i = 0; i < samples; ++i) {
    inputs[i].narrow(1, 2 * targets[i].item<std::int64_t>(), 3).add_(1.5);
  }
  return {inputs, targets, samples};
}

struct MixedPrecision : ::testing::TestWithParam<std::tuple<const char*, Precision>> {};

/// Returns the loss on the first batch before and after some steps.
std::pair<double, double> losses_of(const char* name, Precision precision) {
  std::pair<double, double> losses;
  run_on_threads(1, [&](const auto& group) {
    const auto config = half_precision(name, precision);
    torch::manual_seed(3);
    const auto model =
        recipe::make_trained_model(config, recipe::make_model(config.model), group, nullptr);
    losses.first = model->train_step(batch_of(0, 64), {0.05});
    for (int i = 1; i < 60; ++i) model->train_step(batch_of(i, 64), {0.05});
    losses.second = model->train_step(batch_of(0, 64), {0.05});
    EXPECT_EQ(model->module()->parameters()[0].scalar_type(), torch::kFloat32);
  });
  return losses;
}

TEST_P(MixedPrecision, BuiltInModelsLearnAsInFp32) {
  const auto [name, precision] = GetParam();
  const auto whole = losses_of(name, Precision::fp32);
  const auto half = losses_of(name, precision);
  EXPECT_LT(whole.second, 0.9 * whole.first);
  EXPECT_NE(half.second, whole.second) << "nothing was computed in 16 bits";
  EXPECT_NEAR(half.second, whole.second, 0.03 * whole.second);
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision,
                         ::testing::Combine(::testing::Values("mlp", "convnet"),
                                            ::testing::Values(Precision::bf16, Precision::fp16)));

TEST(MixedPrecision, AnInfinityOnOneRankMakesAllSkipTheStep) {
  const auto config = half_precision("mlp", Precision::fp16);
  std::vector<torch::Tensor> results(2);
  run_on_threads(2, [&](const auto& group) {
    const auto model =
        recipe::make_trained_model(config, recipe::make_model(config.model), group, nullptr);
    const auto first = model->module()->parameters()[0];
    const auto before = first.detach().clone();
    auto batch = batch_of(1, 4);
    if (group->getRank() == 1) batch.inputs[0][0][0][0] = 1e30;  // Exceeds fp16.
    model->train_step(batch, {0.1});
    EXPECT_TRUE(first.equal(before));
    EXPECT_EQ(model->scaler()->skipped(), 1);
    EXPECT_EQ(model->scaler()->scale(), 32768);
    model->train_step(batch_of(2, 4), {0.1});
    EXPECT_FALSE(first.equal(before));
    results[static_cast<std::size_t>(group->getRank())] = first.detach().clone();
  });
  EXPECT_TRUE(results[0].equal(results[1]));
}

}  // namespace
}  // namespace gradwire::test
