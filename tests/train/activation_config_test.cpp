#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

recipe::TrainConfig parse(const std::string& text) {
  return recipe::parse_train_config(nlohmann::json::parse(text));
}

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(ActivationCheckpointingConfig, IsOfBlocksOfTheModel) {
  EXPECT_EQ(parse("{}").model.checkpoints, 0);
  const auto config = parse(R"({"model": {"name": "resnet", "blocks": 2},
                                "activation_checkpointing": {"number_checkpoints": 8}})");
  EXPECT_EQ(config.model.checkpoints, 8);
  EXPECT_EQ(config.model.blocks, 2);
}

TEST(ActivationCheckpointingConfig, RefusesMoreThanThereAreBlocks) {
  EXPECT_THAT(refusal(R"({"model": {"name": "resnet"},
                          "activation_checkpointing": {"number_checkpoints": 5}})"),
              AllOf(HasSubstr("number_checkpoints is 5"), HasSubstr("has 4 blocks")));
  EXPECT_THAT(refusal(R"({"model": {"name": "mlp"},
                          "activation_checkpointing": {"number_checkpoints": 1}})"),
              HasSubstr("has 0 blocks"));
}

TEST(ActivationCheckpointingConfig, RefusesInvalidValues) {
  EXPECT_THAT(refusal(R"({"activation_checkpointing": {"partition_activations": true}})"),
              HasSubstr("tensor parallelism"));
  EXPECT_THAT(refusal(R"({"activation_checkpointing": {"number_checkpoint": 1}})"),
              HasSubstr("number_checkpoints"));
  EXPECT_THAT(refusal(R"({"model": {"name": "resnet"}, "parallel": {"find_unused_parameters": true},
                          "activation_checkpointing": {"number_checkpoints": 1}})"),
              HasSubstr("find_unused_parameters"));
}

TEST(ModelConfig, ReadsResnetAndGpt) {
  EXPECT_THAT(refusal(R"({"model": {"name": "resnet", "channels": 12}})"),
              HasSubstr("model.channels 12 is not divisible by model.groups 8"));
  const auto config = parse(R"({"data": {"name": "text"},
                                "model": {"name": "gpt", "vocabulary": 8192, "dropout": 0.1}})");
  EXPECT_EQ(config.model.vocabulary, 8192);
  EXPECT_EQ(config.model.dropout, 0.1);
  EXPECT_THAT(refusal(R"({"data": {"name": "text"}, "model": {"vocabulary": 8192}})"),
              HasSubstr("vocabulary"));
}

TEST(OffloadConfig, NeedsAFolderAndAStage) {
  const auto config = parse(R"({"zero": {"stage": 1, "offload_optimizer":
                                         {"device": "nvme", "nvme_path": "/disk"}}})");
  EXPECT_EQ(config.zero.offload_path, "/disk");
  EXPECT_THAT(refusal(R"({"zero": {"stage": 1, "offload_optimizer": {"device": "nvme"}}})"),
              HasSubstr("nvme_path"));
  EXPECT_THAT(refusal(R"({"zero": {"offload_optimizer": {"device": "nvme", "nvme_path": "/d"}}})"),
              HasSubstr("zero.stage"));
}

}  // namespace
}  // namespace gradwire::test
