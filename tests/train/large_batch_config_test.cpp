#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

recipe::TrainConfig parsed(const char* text) {
  return recipe::parse_train_config(nlohmann::json::parse(text));
}

std::string error_of(const char* text) {
  try {
    parsed(text);
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(LargeBatchConfig, ReadsTheOptimizersOfLargeBatches) {
  const auto lars = parsed(R"({"optimizer": {"name": "lars", "trust_coefficient": 0.01,
                                             "momentum": 0.8, "weight_decay": 0.1}})")
                        .optimizer;
  EXPECT_EQ(lars.trust_coefficient, 0.01);
  EXPECT_EQ(lars.momentum, 0.8);
  EXPECT_EQ(lars.learning_rate, 1);
  const auto lamb = parsed(R"({"optimizer": {"name": "lamb", "beta2": 0.9}})").optimizer;
  EXPECT_EQ(lamb.beta2, 0.9);
  EXPECT_EQ(lamb.epsilon, 1e-6);
  const auto ranger = parsed(R"({"optimizer": {"name": "ranger_lars", "lookahead_steps": 6,
                                               "lookahead_rate": 0.8}})")
                          .optimizer;
  EXPECT_EQ(ranger.lookahead_steps, 6);
  EXPECT_EQ(ranger.lookahead_rate, 0.8);
  EXPECT_EQ(ranger.trust_coefficient, 1);
  EXPECT_EQ(parsed(R"({"optimizer": {"name": "yogi"}})").optimizer.epsilon, 1e-3);
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "radam", "lookahead_steps": 6}})"),
              HasSubstr("\"lookahead_steps\""));
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "lamb", "momentum": 0.9}})"),
              HasSubstr("\"momentum\""));
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "sgd", "trust_coefficient": 1}})"),
              HasSubstr("\"trust_coefficient\""));
}

TEST(LargeBatchConfig, TheRateGrowsWithTheBatchAsItIsTold) {
  const auto rate = [](const char* scaling, std::int64_t batch) {
    recipe::OptimizerConfig config{
        .learning_rate = 0.1, .scaling = scaling, .base_batch_size = 128};
    return recipe::learning_rates(config, batch, 1)[0];
  };
  EXPECT_DOUBLE_EQ(rate("none", 512), 0.1);
  EXPECT_DOUBLE_EQ(rate("linear", 512), 0.4);
  EXPECT_DOUBLE_EQ(rate("sqrt", 512), 0.2);
  EXPECT_DOUBLE_EQ(rate("linear", 128), 0.1);
}

TEST(LargeBatchConfig, ScalingNeedsToKnowFromWhat) {
  const auto config = parsed(R"({"optimizer": {"learning_rate_scaling": "sqrt",
                                               "base_batch_size": 64}})");
  EXPECT_EQ(config.optimizer.scaling, "sqrt");
  EXPECT_EQ(config.optimizer.base_batch_size, 64);
  EXPECT_THAT(error_of(R"({"optimizer": {"learning_rate_scaling": "linear"}})"),
              HasSubstr("optimizer.base_batch_size"));
  EXPECT_THAT(error_of(R"({"optimizer": {"learning_rate_scaling": "root"}})"),
              AllOf(HasSubstr("learning_rate_scaling"), HasSubstr("sqrt")));
}

TEST(LargeBatchConfig, TheExamplesTakeSixteenTimesTheBatch) {
  struct Example {
    const char *name, *scaling;
    double rate;
  };
  for (const auto& [name, scaling, rate] :
       {Example{"sgd", "linear", 0.16}, Example{"lars", "sqrt", 2},
        Example{"lamb", "sqrt", 0.02}}) {
    const auto config = recipe::load_train_config(
        std::string(GRADWIRE_SOURCE "/examples/large_batch_") + name + ".json", {});
    EXPECT_EQ(config.optimizer.name, name);
    EXPECT_EQ(config.optimizer.scaling, scaling);
    EXPECT_EQ(config.batch_size, 16 * config.optimizer.base_batch_size);
    EXPECT_DOUBLE_EQ(recipe::learning_rates(config.optimizer, config.batch_size, 1)[0], rate);
    EXPECT_GT(config.schedule.warmup_epochs, 0);
  }
}

TEST(LocalStepsConfig, ReadsEveryKey) {
  const auto config = parsed(R"({"local_steps": {"steps": 20, "outer_learning_rate": 0.7,
      "outer_momentum": 0.9, "fragments": 2, "overlap_steps": 3, "mixing": 0.2,
      "codec": "int8"}})")
                          .local_steps;
  EXPECT_EQ(config, (step::LocalStepsConfig{.steps = 20,
                                            .outer_learning_rate = 0.7,
                                            .outer_momentum = 0.9,
                                            .fragments = 2,
                                            .overlap_steps = 3,
                                            .mixing = 0.2,
                                            .codec = "int8",
                                            .enabled = true}));
  EXPECT_FALSE(parsed("{}").local_steps.enabled);
}

TEST(LocalStepsConfig, MixesHalfAndHalfWhereStepsOverlap) {
  EXPECT_EQ(parsed(R"({"local_steps": {"steps": 4}})").local_steps.mixing, 0);
  EXPECT_EQ(parsed(R"({"local_steps": {"steps": 4, "overlap_steps": 1}})").local_steps.mixing, 0.5);
}

TEST(LocalStepsConfig, RefusesIncompatibleKeys) {
  EXPECT_THAT(error_of(R"({"local_steps": {"codec": "int8"}})"), HasSubstr("steps is missing"));
  EXPECT_THAT(error_of(R"({"local_steps": {"steps": 4, "fragments": 5}})"),
              HasSubstr("5 fragments"));
  EXPECT_THAT(error_of(R"({"local_steps": {"steps": 4, "overlap_steps": 4}})"),
              HasSubstr("overlap_steps"));
  EXPECT_THAT(error_of(R"({"local_steps": {"step": 4}})"), HasSubstr("\"steps\""));
}

TEST(LocalStepsConfig, RefusesKeysThatNeedGlobalGradients) {
  const auto error = [](const std::string& key) {
    return error_of((R"({"local_steps": {"steps": 4}, )" + key + "}").c_str());
  };
  EXPECT_THAT(error(R"("parallel": {"check_finite": true})"),
              AllOf(HasSubstr("parallel.check_finite"), HasSubstr("local_steps")));
  EXPECT_THAT(error(R"("precision": "fp16")"),
              AllOf(HasSubstr("\"fp16\""), HasSubstr("local_steps"), HasSubstr("\"bf16\"")));
  EXPECT_THAT(error(R"("gradient_clipping": 1)"),
              AllOf(HasSubstr("gradient_clipping"), HasSubstr("local_steps")));
  EXPECT_EQ(error(R"("precision": "bf16")"), "no error");
}

TEST(LocalStepsConfig, TheCodecIsKnownBeforeRanksStart) {
  const auto error = [](const std::string& codec, const std::string& more = "") {
    return error_of(
        (R"({"local_steps": {"steps": 4, "codec": ")" + codec + "\"" + more + "}}").c_str());
  };
  EXPECT_THAT(error("int9"), AllOf(HasSubstr("local_steps.codec"), HasSubstr("\"int9\""),
                                   HasSubstr("\n  int8 "), HasSubstr("power_sgd")));
  EXPECT_THAT(error("auto:auto"), HasSubstr("local_steps.codec"));
  EXPECT_EQ(error("power_sgd:2"), "no error");
  EXPECT_EQ(error("auto:int4"), "no error");
  EXPECT_EQ(error("int4", R"(, "fragments": 2)"), "no error");
  for (const std::string codec : {"auto", "auto:int4"}) {
    EXPECT_THAT(error(codec, R"(, "fragments": 2)"),
                AllOf(HasSubstr("\"" + codec + "\""), HasSubstr("2 fragments")));
  }
}

TEST(TextConfig, SelectsTheModelAndItsContext) {
  const auto config = parsed(R"({"data": {"name": "text", "context": 32},
                                 "model": {"width": 32, "layers": 3, "heads": 8}})");
  EXPECT_EQ(config.model.name, "transformer");
  EXPECT_EQ(config.model.context, 32);
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_THAT(error_of(R"({"data": {"name": "text"}, "model": {"name": "convnet"}})"),
              HasSubstr("transformer"));
  EXPECT_THAT(error_of(R"({"data": {"name": "text"}, "model": {"width": 6, "heads": 4}})"),
              HasSubstr("model.width 6 is not divisible by model.heads 4"));
  EXPECT_THAT(error_of(R"({"data": {"context": 32}})"), HasSubstr("\"context\""));
  EXPECT_THAT(error_of(R"({"model": {"name": "transformer"}})"), HasSubstr("convnet"));
}

}  // namespace
}  // namespace gradwire::test
