// "fp16" in a configuration, and the resulting behavior of the loss scaler.
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/train/optim/mixed_precision.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

recipe::TrainConfig scaled_config_of(const std::string& text) {
  return recipe::parse_train_config(json::parse(text));
}

/// Options for `fp16` in a configuration of that precision.
LossScalerOptions scaling_of(const std::string& fp16, const std::string& precision = "\"fp16\"") {
  return scaled_config_of(R"({"precision": )" + precision + R"(, "fp16": )" + fp16 + "}")
      .loss_scaling;
}

std::string scaling_error_of(const std::string& fp16, const std::string& precision = "\"fp16\"") {
  try {
    scaling_of(fp16, precision);
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(LossScalingConfig, IsTheUsualOneUnlessItSaysOtherwise) {
  EXPECT_EQ(scaling_of("{}"), LossScalerOptions{});
  EXPECT_EQ(scaling_of(R"({"enabled": true, "loss_scale": 0})"), LossScalerOptions{});
  EXPECT_EQ(scaled_config_of(R"({"precision": "fp16"})").loss_scaling, LossScalerOptions{});
}

TEST(LossScalingConfig, ReadsEveryKey) {
  EXPECT_EQ(scaling_of(R"({
    "enabled": true, "loss_scale": 0, "initial_scale_power": 10, "loss_scale_window": 500,
    "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 0.5
  })"),
            (LossScalerOptions{.scale = 1024,
                               .growth_interval = 500,
                               .hysteresis = 3,
                               .consecutive_hysteresis = true,
                               .min_scale = 0.5}));
  EXPECT_EQ(scaling_of(R"({"loss_scale": 128})"), (LossScalerOptions{.scale = 128, .fixed = true}));
}

TEST(LossScalingConfig, GoesWithParametersInFp16) {
  const auto config =
      scaled_config_of(R"({"zero": {"stage": 2}, "precision": {"parameters": "fp16"},
                                    "fp16": {"loss_scale": 8}})");
  EXPECT_EQ(config.loss_scaling.scale, 8);
}

TEST(LossScalingConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(scaling_error_of(R"({"histeresis": 2})"),
              AllOf(HasSubstr("fp16"), HasSubstr("hysteresis")));
  EXPECT_THAT(scaling_error_of(R"({"hysteresis": 0})"), HasSubstr("fp16.hysteresis is 0"));
  EXPECT_THAT(scaling_error_of(R"({"loss_scale": -1})"), HasSubstr("fp16.loss_scale is -1"));
  EXPECT_THAT(scaling_error_of(R"({"loss_scale": 1e-10})"), HasSubstr("fp16.loss_scale is 1e-10"));
  EXPECT_THAT(scaling_error_of(R"({"loss_scale": "dynamic"})"), HasSubstr("fp16.loss_scale is"));
  EXPECT_THAT(scaling_error_of(R"({"initial_scale_power": 41})"),
              HasSubstr("fp16.initial_scale_power is"));
  EXPECT_THAT(scaling_error_of(R"({"loss_scale_window": 0})"),
              HasSubstr("fp16.loss_scale_window is 0"));
  EXPECT_THAT(scaling_error_of(R"({"min_loss_scale": 0})"), HasSubstr("fp16.min_loss_scale is 0"));
  EXPECT_THAT(scaling_error_of("true"), HasSubstr("fp16 is true"));
}

TEST(LossScalingConfig, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(scaling_error_of(R"({"initial_scale_power": 2, "min_loss_scale": 8})"),
              AllOf(HasSubstr("fp16.min_loss_scale is 8"), HasSubstr("fp16.initial_scale_power")));
  for (const auto* key : {"initial_scale_power", "loss_scale_window", "hysteresis",
                          "consecutive_hysteresis", "min_loss_scale"}) {
    EXPECT_THAT(scaling_error_of(json({{"loss_scale", 128}, {key, 1}}).dump()),
                AllOf(HasSubstr("fp16." + std::string(key)), HasSubstr("fp16.loss_scale 128")));
  }
}

TEST(LossScalingConfig, IsOfPrecisionFp16Alone) {
  EXPECT_THAT(scaling_error_of(R"({"hysteresis": 2})", "\"bf16\""),
              AllOf(HasSubstr("fp16"), HasSubstr("precision is \"bf16\"")));
  EXPECT_THAT(scaling_error_of(R"({"enabled": true})", "\"fp32\""),
              AllOf(HasSubstr("fp16.enabled is true"), HasSubstr("precision")));
  EXPECT_THAT(scaling_error_of(R"({"enabled": false})"), HasSubstr("fp16.enabled is false"));
  EXPECT_EQ(scaling_error_of(R"({"enabled": false, "hysteresis": 2})", "\"bf16\""), "no error");
  EXPECT_THAT(scaling_error_of(R"({"enabled": false, "hysteresi": 2})", "\"bf16\""),
              HasSubstr("hysteresis"));
}

/// Returns the scale after each step; '+': the gradients were finite.
std::vector<double> scales(LossScaler& scaler, std::string_view steps) {
  std::vector<double> found;
  for (const auto step : steps) {
    scaler.update(step == '+');
    found.push_back(scaler.scale());
  }
  return found;
}

TEST(LossScaling, HysteresisToleratesStepsUntilTheScaleGrows) {
  LossScaler scaler({.scale = 8, .growth_interval = 2, .hysteresis = 2});
  EXPECT_THAT(scales(scaler, "-+-"), ElementsAre(8, 8, 4)) << "a finite step alone changes nothing";
  EXPECT_THAT(scales(scaler, "-"), ElementsAre(2)) << "nothing more is tolerated";
  EXPECT_THAT(scales(scaler, "++-"), ElementsAre(2, 4, 4)) << "it has grown: one is again";
  EXPECT_THAT(scales(scaler, "-"), ElementsAre(2));
  EXPECT_EQ(scaler.skipped(), 5);
}

TEST(LossScaling, ConsecutiveHysteresisBeginsAnewAfterEachFiniteStep) {
  LossScaler scaler(
      {.scale = 8, .growth_interval = 100, .hysteresis = 2, .consecutive_hysteresis = true});
  EXPECT_THAT(scales(scaler, "-+-+--"), ElementsAre(8, 8, 8, 8, 8, 4));
}

TEST(LossScaling, NeverGoesBelowTheMinimumScale) {
  LossScaler scaler({.scale = 8, .growth_interval = 2, .min_scale = 3});
  EXPECT_THAT(scales(scaler, "--"), ElementsAre(4, 3));
  EXPECT_THAT(scales(scaler, "++-"), ElementsAre(3, 6, 3));
  EXPECT_THROW(scaler.update(false), Exception);
}

TEST(LossScaling, AFixedScaleStaysAndGivesUpAfterManySkippedStepsInARow) {
  LossScaler scaler({.scale = 128, .fixed = true, .growth_interval = 2});
  EXPECT_THAT(scales(scaler, "++-++"), ElementsAre(128, 128, 128, 128, 128));
  for (int step = 0; step < 32; ++step) scaler.update(false);
  scaler.update(true);
  for (int step = 0; step < 32; ++step) scaler.update(false);
  try {
    scaler.update(false);
    ADD_FAILURE() << "it goes on for ever";
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("33 consecutive steps at the fixed loss scale 128"));
  }
}

TEST(LossScaling, GoesOnFromItsStateAsFarAsItsOptionsAllow) {
  const LossScalerOptions options{.scale = 8, .growth_interval = 3, .hysteresis = 2};
  LossScaler saved(options);
  scales(saved, "-+");
  LossScaler same(options);
  same.load(saved.state());
  EXPECT_THAT(scales(same, "-"), ElementsAre(4)) << "one was tolerated before";
  LossScaler fixed({.scale = 128, .fixed = true});
  fixed.load(saved.state());
  EXPECT_EQ(fixed.scale(), 128);
  LossScaler higher({.scale = 1024, .min_scale = 64});
  higher.load(saved.state());
  EXPECT_EQ(higher.scale(), 64);
}

/// At each step '-', one rank's batch has a number that exceeds fp16.
std::vector<double> scales_in_training(int stage, const json& fp16, std::string_view steps) {
  const auto config = recipe::parse_train_config({{"model", {{"name", "mlp"}, {"hidden", 8}}},
                                                  {"precision", "fp16"},
                                                  {"zero", {{"stage", stage}}},
                                                  {"fp16", fp16}});
  std::vector<std::vector<double>> found(2);
  run_on_threads(2, [&](const auto& group) {
    const auto rank = static_cast<std::size_t>(group->getRank());
    const auto model =
        recipe::make_trained_model(config, recipe::make_model(config.model), group, nullptr);
    for (const auto kind : steps) {
      Batch batch{torch::full({4, 1, 28, 28}, 0.1), torch::zeros({4}, torch::kInt64), 4};
      if (kind == '-' && rank == 1) batch.inputs[0][0][0][0] = 1e30;
      model->train_step(batch, {0.01});
      found[rank].push_back(model->scaler()->scale());
    }
    model->finish();
  });
  EXPECT_EQ(found[0], found[1]) << "ranks scale differently";
  return found[0];
}

struct LossScalingTraining : ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, LossScalingTraining, ::testing::Values(0, 1, 2, 3));

TEST_P(LossScalingTraining, HonoursTheConfigurationOnAllRanksAlike) {
  EXPECT_THAT(scales_in_training(GetParam(),
                                 {{"initial_scale_power", 4},
                                  {"loss_scale_window", 2},
                                  {"hysteresis", 2},
                                  {"min_loss_scale", 6}},
                                 "++----++"),
              ElementsAre(16, 32, 32, 16, 8, 6, 6, 12));
  EXPECT_THAT(scales_in_training(GetParam(), {{"loss_scale", 64}}, "+-+"), ElementsAre(64, 64, 64));
}

}  // namespace
}  // namespace gradwire::test
