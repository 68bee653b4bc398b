#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

recipe::TrainConfig config_of(const char* text) {
  return recipe::parse_train_config(json::parse(text));
}

std::string error_of(const char* text) {
  try {
    config_of(text);
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(ZeroConfig, IsDataParallelUnlessItSaysOtherwise) {
  const auto config = config_of("{}");
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.parameters, Precision::fp32);
}

TEST(ZeroConfig, ReadsEveryKey) {
  const auto config = config_of(R"({
    "zero": {"stage": 3, "reduce_bucket_size": 1000, "overlap_comm": false,
             "stage3_prefetch_bucket_size": 7, "stage3_param_persistence_threshold": 8},
    "gradient_clipping": 1.5, "accumulation_steps": 2,
    "precision": {"parameters": "fp16"}
  })");
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.zero.reduce_bucket_size, 1000);
  EXPECT_FALSE(config.zero.overlap_comm);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 7);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 8);
  EXPECT_EQ(config.gradient_clipping, 1.5);
  EXPECT_EQ(config.parameters, Precision::fp16);
  EXPECT_EQ(config.precision, Precision::fp16) << "what parameters are in is computed in";
  EXPECT_EQ(config.parallel.overlap, step::Overlap::full)
      << "ZeRO need not wait for all parameters";
}

TEST(ZeroConfig, TakesDeepSpeedsNames) {
  const auto config = config_of(R"({
    "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4
  })");
  EXPECT_EQ(config.zero.stage, 2);
  EXPECT_EQ(config.accumulation_steps, 4);
  EXPECT_THAT(error_of(R"({"zero": {}, "zero_optimization": {}})"),
              AllOf(HasSubstr("zero_optimization"), HasSubstr("leave one out")));
  EXPECT_THAT(error_of(R"({"accumulation_steps": 1, "gradient_accumulation_steps": 1})"),
              HasSubstr("leave one out"));
}

TEST(ZeroConfig, TakesThreeNamesForAccumulationOneAtATime) {
  for (const auto* name :
       {"accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation"}) {
    EXPECT_EQ(recipe::parse_train_config(json::object({{name, 4}})).accumulation_steps, 4) << name;
  }
  EXPECT_THAT(error_of(R"({"gradient_accumulation": 2, "accumulation_steps": 2})"),
              HasSubstr("accumulation_steps and gradient_accumulation are the same"));
  EXPECT_THAT(error_of(R"({"gradient_accumulation": 2, "gradient_accumulation_steps": 2})"),
              HasSubstr("gradient_accumulation_steps and gradient_accumulation are the same"));
  EXPECT_THAT(error_of(R"({"gradient_accumulation": 0})"),
              HasSubstr("gradient_accumulation is 0; it must be a whole number"));
}

TEST(ZeroConfig, OneFileSaysEverything) {
  const auto config = config_of(R"({
    "zero": {"stage": 2}, "precision": "bf16", "gradient_accumulation": 4, "codec": "int8",
    "activation_checkpointing": {"number_checkpoints": 0}
  })");
  EXPECT_EQ(config.zero.stage, 2);
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_EQ(config.accumulation_steps, 4);
  EXPECT_EQ(config.parallel.codec, "int8");
}

TEST(ZeroConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(error_of(R"({"zero": {"stagee": 1}})"), HasSubstr("stage"));
  EXPECT_THAT(error_of(R"({"zero": {"stage": 4}})"), HasSubstr("zero.stage is 4"));
  EXPECT_THAT(error_of(R"({"precision": {"parameters": "fp8"}})"), HasSubstr("fp8"));
  EXPECT_THAT(error_of(R"({"precision": {"weights": "bf16"}})"), HasSubstr("precision"));
  EXPECT_THAT(error_of(R"({"gradient_clipping": -1})"), HasSubstr("gradient_clipping is -1"));
}

TEST(ZeroConfig, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(error_of(R"({"zero": {"stage": 1}, "parallel": {"codec": "power_sgd:2"}})"),
              AllOf(HasSubstr("parallel.codec power_sgd:2"), HasSubstr("zero.stage 1")));
  EXPECT_THAT(error_of(R"({"zero": {"stage": 2}, "parallel": {"codec": "auto"}})"),
              AllOf(HasSubstr("parallel.codec auto"), HasSubstr("int8")));
  EXPECT_THAT(error_of(R"({"zero": {"stage": 1}, "precision": {"parameters": "bf16"},
                           "parallel": {"codec": "int8"}})"),
              AllOf(HasSubstr("parallel.codec"), HasSubstr("fp32")));
  EXPECT_THAT(error_of(R"({"zero": {"stage": 3}, "parallel": {"check_finite": true}})"),
              HasSubstr("parallel.check_finite"));
  EXPECT_THAT(error_of(R"({"precision": {"parameters": "bf16"}})"), HasSubstr("zero.stage"));
  EXPECT_THAT(error_of(R"({"zero": {"stage": 1},
                           "precision": {"parameters": "bf16", "compute": "fp16"}})"),
              HasSubstr("precision.compute"));
}

TEST(GradientClipping, WithoutZeroWaitsForAllGradients) {
  EXPECT_EQ(config_of(R"({"gradient_clipping": 1})").parallel.overlap, step::Overlap::backward);
  EXPECT_THAT(error_of(R"({"gradient_clipping": 1, "parallel": {"overlap": "full"}})"),
              AllOf(HasSubstr("gradient_clipping"), HasSubstr("backward")));
}

}  // namespace
}  // namespace gradwire::test
